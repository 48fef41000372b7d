# SPDX-License-Identifier: BSD-3-Clause
# Data-parallel training.
libdist_core_sources += \
	src/ddp/common.c \
	src/ddp/ddp.h \
	src/ddp/ddp.c \
	src/ddp/sampler.c \
	src/ddp/wire.c \
	src/ddp/zero.c

# Square roots that set no errno vectorise.
libdist_optimizers_la_SOURCES = src/ddp/optimizers.c
libdist_optimizers_la_CFLAGS = $(AM_CFLAGS) -fno-math-errno
noinst_LTLIBRARIES += libdist_optimizers.la
