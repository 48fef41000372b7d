# SPDX-License-Identifier: BSD-3-Clause
# Measuring: our all-reduce beside Open MPI's own, interleaved in one run.
noinst_LTLIBRARIES += libbench.la
libbench_la_SOURCES = \
	bench/result.c bench/result.h \
	bench/worker.h

if HAVE_OPENMPI
noinst_PROGRAMS += bench/versus_mpi
endif
bench_versus_mpi_SOURCES = bench/versus_mpi.c
bench_versus_mpi_CPPFLAGS = $(AM_CPPFLAGS) $(OPENMPI_CFLAGS)
bench_versus_mpi_LDADD = libdist.la $(OPENMPI_LIBS)

# A cluster out of network namespaces, to measure on.
EXTRA_DIST += bench/netns-cluster
