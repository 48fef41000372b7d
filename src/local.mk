# SPDX-License-Identifier: BSD-3-Clause
# The library, and the modules that are loaded by name.

# All objects of the library. libdist.la exports the public symbols; unit tests link everything.
libdist_core_la_SOURCES = $(libdist_core_sources)
libdist_core_la_CPPFLAGS = $(AM_CPPFLAGS) $(HWLOC_CFLAGS) $(OPENSSL_CFLAGS) \
	-DDISTI_MODULE_DIR='"$(moduledir)"'
libdist_core_la_LIBADD = libdist_optimizers.la $(HWLOC_LIBS) $(OPENSSL_LIBS) -ldl -lm
noinst_LTLIBRARIES += libdist_core.la

libdist_la_SOURCES =
libdist_la_LIBADD = libdist_core.la
libdist_la_LDFLAGS = $(AM_LDFLAGS) -no-undefined -version-info 0:0:0 $(DISTI_SHARED_LDFLAGS) \
	-Wl,--version-script=$(srcdir)/src/libdist.map
EXTRA_libdist_la_DEPENDENCIES = src/libdist.map
lib_LTLIBRARIES += libdist.la
EXTRA_DIST += src/libdist.map

# The mpi module, built once for each available MPI. It does not link libdist, which passes a table of
# functions to it.
moduledir = $(libdir)/dist
module_ldflags = $(AM_LDFLAGS) -module -avoid-version -shared -no-undefined

dist_mpi_openmpi_la_LIBTOOLFLAGS = $(shared_only)
dist_mpi_openmpi_la_SOURCES = $(mpi_module_sources)
dist_mpi_openmpi_la_CPPFLAGS = $(AM_CPPFLAGS) $(OPENMPI_CFLAGS) -DDISTI_MPI_FLAVOUR='"openmpi"'
dist_mpi_openmpi_la_LDFLAGS = $(module_ldflags)
dist_mpi_openmpi_la_LIBADD = $(OPENMPI_LIBS)
if HAVE_OPENMPI
module_LTLIBRARIES += dist_mpi_openmpi.la
endif

dist_mpi_mpich_la_LIBTOOLFLAGS = $(shared_only)
dist_mpi_mpich_la_SOURCES = $(mpi_module_sources)
dist_mpi_mpich_la_CPPFLAGS = $(AM_CPPFLAGS) $(MPICH_CFLAGS) -DDISTI_MPI_FLAVOUR='"mpich"'
dist_mpi_mpich_la_LDFLAGS = $(module_ldflags)
dist_mpi_mpich_la_LIBADD = $(MPICH_LIBS)
if HAVE_MPICH
module_LTLIBRARIES += dist_mpi_mpich.la
endif

# The nccl module. It builds without CUDA and NCCL.
dist_nccl_la_LIBTOOLFLAGS = $(shared_only)
dist_nccl_la_SOURCES = $(nccl_module_sources)
dist_nccl_la_CPPFLAGS = $(AM_CPPFLAGS)
dist_nccl_la_LDFLAGS = $(module_ldflags)
dist_nccl_la_LIBADD = -ldl
if HAVE_NCCL
module_LTLIBRARIES += dist_nccl.la
endif

# The ucx module.
dist_ucx_la_LIBTOOLFLAGS = $(shared_only)
dist_ucx_la_SOURCES = $(ucx_module_sources)
dist_ucx_la_CPPFLAGS = $(AM_CPPFLAGS) $(UCX_CFLAGS)
dist_ucx_la_LDFLAGS = $(module_ldflags)
dist_ucx_la_LIBADD = $(UCX_LIBS)
if HAVE_UCX
module_LTLIBRARIES += dist_ucx.la
endif
