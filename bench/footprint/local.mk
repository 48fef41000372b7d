# SPDX-License-Identifier: BSD-3-Clause
# What it costs to be there: start, memory, descriptors.
startup_sources = bench/footprint/startup.c bench/footprint/startup.h

noinst_PROGRAMS += bench/startup_dist
bench_startup_dist_SOURCES = $(startup_sources) bench/footprint/startup_dist.c
bench_startup_dist_LDADD = libdist.la
bench_startup_dist_LDFLAGS = $(job_ldflags)

if HAVE_OPENMPI
noinst_PROGRAMS += bench/startup_openmpi
endif
bench_startup_openmpi_SOURCES = $(startup_sources) bench/footprint/startup_mpi.c
bench_startup_openmpi_CPPFLAGS = $(AM_CPPFLAGS) $(OPENMPI_CFLAGS)
bench_startup_openmpi_LDADD = $(OPENMPI_LIBS)

if HAVE_MPICH
noinst_PROGRAMS += bench/startup_mpich
endif
bench_startup_mpich_SOURCES = $(startup_sources) bench/footprint/startup_mpi.c
bench_startup_mpich_CPPFLAGS = $(AM_CPPFLAGS) $(MPICH_CFLAGS)
bench_startup_mpich_LDADD = $(MPICH_LIBS)
EXTRA_DIST += bench/footprint/footprint.sh
