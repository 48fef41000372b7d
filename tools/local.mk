# SPDX-License-Identifier: BSD-3-Clause
# A line on a terminal that says what long work is at.
noinst_LTLIBRARIES += libprogress.la
libprogress_la_SOURCES = tools/common/progress.c tools/common/progress.h

# What the other programs share: their command lines, and memory of GPUs.
noinst_LTLIBRARIES += libcommon.la
libcommon_la_SOURCES = \
	tools/common/args.c tools/common/args.h \
	tools/common/args_help.c \
	tools/common/gpu.c tools/common/gpu.h
libcommon_la_LIBADD = libprogress.la -lm

# Programs for people who use the library; they know its public headers only.
bin_PROGRAMS += dist_info
dist_info_SOURCES = \
	tools/dist_info.c \
	tools/explain.c \
	tools/explain.h \
	tools/explain_print.c \
	tools/explain_run.c \
	tools/memory.c \
	tools/memory.h \
	tools/memory_probe.c \
	tools/modules.c \
	tools/modules.h \
	tools/tune.c
dist_info_LDADD = libselftest.la libdist.la -lm
