# SPDX-License-Identifier: BSD-3-Clause
# Drivers of other libraries, which dist_bench measures beside ours. NAME is a script that starts
# the ranks, workers/ has the programs that they run. No peer is needed by anything else.
peersdir = $(libexecdir)/dist/peers
peers_workersdir = $(peersdir)/workers
peers_SCRIPTS =
peers_workers_PROGRAMS =
peers_source = \
	bench/pattern.c bench/measure.h \
	bench/measure.c \
	bench/peers/names.c \
	bench/protocol.h
# Another library is measured without our sanitizers.
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
# Without the page faults of temporary buffers that are mapped and unmapped in every call.
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

# Where peers are started from: beside their workers, in the build tree too.
peers_start = bench/peers/workers/start.sh
$(peers_start): bench/peers/start.sh
	$(AM_V_GEN)$(MKDIR_P) bench/peers/workers && cp $(srcdir)/bench/peers/start.sh $@
noinst_DATA = $(peers_start)
CLEANFILES += $(peers_SCRIPTS) $(peers_start)

# Runs the whole table of targets.
EXTRA_DIST += bench/performance bench/performance.awk

# What setup builds workers of further MPIs from: a copy of the source tree's part.
dist_peers_SCRIPTS = bench/peers/setup
dist_peers_DATA = bench/peers/README.md
dist_peers_workers_DATA = bench/peers/start.sh
nobase_dist_peers_workers_SCRIPTS = bench/peers/write-peer
nobase_peers_workers_DATA = \
	$(peers_source) \
	bench/peers/mpi_worker.c \
	bench/peers/start.sh \
	include/dist/dist.h
