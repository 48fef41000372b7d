# SPDX-License-Identifier: BSD-3-Clause
# dist_bench. Everything but main is a library, so that unit tests can link it.
noinst_LTLIBRARIES += libbench.la
libbench_la_LIBTOOLFLAGS = $(static_only)
libbench_la_SOURCES = \
	bench/compare.c \
	bench/rounds.c bench/rounds.h \
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

# Compares the speed of the progress thread with that of blocking calls.
noinst_PROGRAMS += bench/overlap
bench_overlap_SOURCES = bench/overlap.c
bench_overlap_LDADD = libdist.la

# Measures threads that call the library concurrently.
noinst_PROGRAMS += bench/threads
bench_threads_SOURCES = bench/threads.c
bench_threads_LDADD = libdist.la

# Scripts: a cluster of network namespaces, and the cost of security.
EXTRA_DIST += bench/netns-cluster bench/trust-cost

# Printing, saving, drawing and comparing results.
libbench_la_SOURCES += \
	bench/html.c \
	bench/print.c \
	bench/result.c bench/report.h

# Draws curves of saved results as SVG.
noinst_PROGRAMS += bench/draw
bench_draw_SOURCES = bench/draw.c
bench_draw_LDADD = libbench.la libdist.la -lm

# Measures the memory bandwidth that bounds the performance on this machine.
libbench_la_SOURCES += \
	bench/limit.c

# The work of one rank: buffers, calls, times and checks.
libbench_la_SOURCES += \
	bench/pattern.c bench/measure.h \
	bench/measure.c \
	bench/driver_libdist.c

# The contestants: libraries in other processes, and the ranks of this process.
libbench_la_SOURCES += \
	bench/libraries.c bench/jobs.h

# The footprint of the library: start time, memory, descriptors.
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

# Training: overlap of communication and computation, and a comparison with PyTorch.
noinst_PROGRAMS += bench/training/overlap
bench_training_overlap_SOURCES = \
	bench/training/overlap.c
bench_training_overlap_CFLAGS = $(AM_CFLAGS) $(KERNEL_CFLAGS)
bench_training_overlap_LDADD = libcommon.la libdist.la

EXTRA_DIST += \
	bench/training/compare bench/training/pytorch.py \
	bench/training/scaling bench/training/zero

# Drivers of other libraries (peers), with which dist_bench compares libdist. peers/NAME is a script that
# starts the ranks, peers/workers/ has the programs that they run. Nothing else needs the peers.
peersdir = $(libexecdir)/dist/peers
peers_workersdir = $(peersdir)/workers
peers_SCRIPTS =
peers_workers_PROGRAMS =
peers_source = \
	tools/common/number.c tools/common/number.h \
	bench/pattern.c bench/measure.h \
	bench/measure.c \
	bench/peers/names.c \
	bench/protocol.h
# Other libraries are measured without our sanitizers.
peers_cflags = -std=gnu11 -O2 -Wall -Wextra -Wshadow -Wstrict-prototypes
peers_write = $(AM_V_GEN)$(MKDIR_P) bench/peers && $(BASH) $(srcdir)/bench/peers/write-peer $@

if HAVE_OPENMPI
peers_SCRIPTS += bench/peers/openmpi bench/peers/openmpi-malloc bench/peers/openmpi-yield
peers_workers_PROGRAMS += bench/peers/workers/openmpi
endif
bench_peers_workers_openmpi_SOURCES = bench/peers/mpi_worker.c $(peers_source)
bench_peers_workers_openmpi_CPPFLAGS = -D_GNU_SOURCE -I$(top_srcdir)/include $(OPENMPI_CFLAGS)
bench_peers_workers_openmpi_CFLAGS = $(peers_cflags)
bench_peers_workers_openmpi_LDFLAGS =
bench_peers_workers_openmpi_LDADD = $(OPENMPI_LIBS) -lm

bench/peers/openmpi: bench/peers/write-peer Makefile
	$(peers_write) openmpi openmpi '$(OPENMPI_RUN)'
# Large thresholds avoid page faults: otherwise temporary buffers are mapped and unmapped in every
# call.
bench/peers/openmpi-malloc: bench/peers/write-peer Makefile
	$(peers_write) openmpi openmpi '$(OPENMPI_RUN)' \
		MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=17179869184
bench/peers/openmpi-yield: bench/peers/write-peer Makefile
	$(peers_write) openmpi openmpi '$(OPENMPI_RUN)' mca:mpi_yield_when_idle=1

if HAVE_MPICH
peers_SCRIPTS += bench/peers/mpich
peers_workers_PROGRAMS += bench/peers/workers/mpich
endif
bench_peers_workers_mpich_SOURCES = bench/peers/mpi_worker.c $(peers_source)
bench_peers_workers_mpich_CPPFLAGS = -D_GNU_SOURCE -I$(top_srcdir)/include $(MPICH_CFLAGS)
bench_peers_workers_mpich_CFLAGS = $(peers_cflags) $(STATUSES_CFLAGS)
bench_peers_workers_mpich_LDFLAGS =
bench_peers_workers_mpich_LDADD = $(MPICH_LIBS) -lm

bench/peers/mpich: bench/peers/write-peer Makefile
	$(peers_write) mpich mpich '$(MPICH_RUN)'

peers_gloo = bench/peers/gloo bench/peers/gloo-bcube bench/peers/gloo-chunked \
	bench/peers/gloo-hd bench/peers/gloo-ring
if HAVE_GLOO
peers_SCRIPTS += $(peers_gloo)
peers_workers_PROGRAMS += bench/peers/workers/gloo
endif
bench_peers_workers_gloo_SOURCES = bench/peers/gloo_worker.cc $(peers_source)
bench_peers_workers_gloo_CPPFLAGS = -D_GNU_SOURCE -I$(top_srcdir)/include $(GLOO_CFLAGS)
bench_peers_workers_gloo_CFLAGS = $(peers_cflags)
bench_peers_workers_gloo_CXXFLAGS = -std=c++14 -O3
bench_peers_workers_gloo_LDFLAGS =
bench_peers_workers_gloo_LDADD = $(GLOO_LIBS) -lm

$(peers_gloo): bench/peers/write-peer Makefile
	$(peers_write) gloo gloo ''

# Link the scripts into the build tree, since peers are started from the directory of their workers.
peers_start = bench/peers/workers/start.sh
$(peers_start): bench/peers/start.sh
	$(AM_V_GEN)$(MKDIR_P) bench/peers/workers && cp $(srcdir)/bench/peers/start.sh $@
noinst_DATA = $(peers_start)
CLEANFILES += $(peers_SCRIPTS) $(peers_start)

# Runs all performance measurements.
EXTRA_DIST += bench/performance bench/performance.awk

# A copy of the sources from which peers/setup builds workers for other MPIs.
dist_peers_SCRIPTS = bench/peers/setup
dist_peers_DATA = bench/peers/README.md
dist_peers_workers_DATA = bench/peers/start.sh
nobase_dist_peers_workers_SCRIPTS = bench/peers/write-peer
nobase_peers_workers_DATA = \
	$(peers_source) \
	bench/peers/mpi_worker.c \
	bench/peers/start.sh \
	include/dist/dist.h
