# SPDX-License-Identifier: BSD-3-Clause
# Measuring. dist_bench: all but main is a library of its own, so that unit tests can have it.
noinst_LTLIBRARIES += libbench.la
libbench_la_LIBTOOLFLAGS = $(static_only)
libbench_la_SOURCES = \
	bench/compare.c \
	bench/options.c bench/options.h \
	 bench/protocol.h 
libbench_la_LIBADD = libcommon.la $(JANSSON_LIBS)
libbench_la_CPPFLAGS = $(AM_CPPFLAGS) \
	-DBENCH_LIBEXECDIR='"$(libexecdir)"' \
	-DBENCH_OPENMPI_RUN='"$(OPENMPI_RUN)"' -DBENCH_MPICH_RUN='"$(MPICH_RUN)"'
libbench_la_CFLAGS = $(AM_CFLAGS) $(KERNEL_CFLAGS) $(JANSSON_CFLAGS)

bin_PROGRAMS += dist_bench
dist_bench_SOURCES = bench/main.c
dist_bench_LDADD = libbench.la libdist.la -ldl -lm

# The progress thread beside calls that block.
noinst_PROGRAMS += bench/overlap
bench_overlap_SOURCES = bench/overlap.c
bench_overlap_LDADD = libdist.la

# A cluster out of network namespaces, to measure on; what safety costs.
EXTRA_DIST += bench/netns-cluster bench/trust-cost
