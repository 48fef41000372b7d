# SPDX-License-Identifier: BSD-3-Clause
# libdist_mpi.so: built once for each installed MPI, to be preloaded into programs of that MPI.
preload_sources = \
	src/preload/call.c \
	src/preload/calls.h \
	src/preload/comms.c \
	src/preload/imports.c \
	src/preload/init.c \
	src/preload/preload.h \
	src/preload/reduce.c \
	src/preload/requests.c

# A path relative to this library, so that it also finds libdist in an installation that was moved.
preload_ldflags = $(module_ldflags) $(DISTI_SHARED_LDFLAGS) -Wl,-rpath,'$$ORIGIN/../..'

openmpi_preloaddir = $(moduledir)/openmpi
src_preload_openmpi_libdist_mpi_la_SHORTNAME = openmpi
src_preload_openmpi_libdist_mpi_la_LIBTOOLFLAGS = $(shared_only)
src_preload_openmpi_libdist_mpi_la_SOURCES = $(preload_sources)
src_preload_openmpi_libdist_mpi_la_CPPFLAGS = $(AM_CPPFLAGS) $(OPENMPI_CFLAGS)
src_preload_openmpi_libdist_mpi_la_LDFLAGS = $(preload_ldflags)
src_preload_openmpi_libdist_mpi_la_LIBADD = libdist.la $(OPENMPI_LIBS) -ldl
if HAVE_OPENMPI
openmpi_preload_LTLIBRARIES = src/preload/openmpi/libdist_mpi.la
endif

mpich_preloaddir = $(moduledir)/mpich
src_preload_mpich_libdist_mpi_la_SHORTNAME = mpich
src_preload_mpich_libdist_mpi_la_LIBTOOLFLAGS = $(shared_only)
src_preload_mpich_libdist_mpi_la_SOURCES = $(preload_sources)
src_preload_mpich_libdist_mpi_la_CPPFLAGS = $(AM_CPPFLAGS) $(MPICH_CFLAGS)
src_preload_mpich_libdist_mpi_la_LDFLAGS = $(preload_ldflags)
src_preload_mpich_libdist_mpi_la_LIBADD = libdist.la $(MPICH_LIBS) -ldl
if HAVE_MPICH
mpich_preload_LTLIBRARIES = src/preload/mpich/libdist_mpi.la
endif
