# SPDX-License-Identifier: BSD-3-Clause
# dist_sim, the tool for plans. It links the library's insides, since plans are not public.
bin_PROGRAMS += dist_sim
dist_sim_SOURCES = \
	tools/sim/draw.c \
	tools/sim/job.h \
	tools/sim/main.c \
	tools/sim/run.c
dist_sim_LDADD = libcommon.la libdist_core.la
