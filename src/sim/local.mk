# SPDX-License-Identifier: BSD-3-Clause
# dist_sim, the tool for plans. It links the library's insides, since plans are not public.
bin_PROGRAMS += dist_sim
dist_sim_SOURCES = \
	src/sim/draw.c \
	src/sim/job.h \
	src/sim/links.c \
	src/sim/main.c \
	src/sim/options.c \
	src/sim/print.c \
	src/sim/run.c
dist_sim_LDADD = libprogress.la libdist_core.la
