# SPDX-License-Identifier: BSD-3-Clause
# Data-parallel training.
libdist_core_sources += \
	src/ddp/common.c \
	src/ddp/compression.c \
	src/ddp/ddp.h \
	src/ddp/ddp.c \
	src/ddp/sampler.c \
	src/ddp/zero.c

# Square roots vectorize only if they do not set errno.
libdist_optimizers_la_SOURCES = src/ddp/optimizers.c
libdist_optimizers_la_CFLAGS = $(AM_CFLAGS) -fno-math-errno
noinst_LTLIBRARIES += libdist_optimizers.la
