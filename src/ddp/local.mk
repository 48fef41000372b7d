# SPDX-License-Identifier: BSD-3-Clause
# Data-parallel training.
libdist_core_sources += \
	src/ddp/common.c src/ddp/common.h \
	src/ddp/create.c \
	src/ddp/ddp.h \
	src/ddp/join.c \
	src/ddp/layout.c \
	src/ddp/norm.c \
	src/ddp/order.c \
	src/ddp/permute.c src/ddp/permute.h \
	src/ddp/place.c \
	src/ddp/query.c \
	src/ddp/sampler.c \
	src/ddp/squares.h \
	src/ddp/step.c \
	src/ddp/tally.c \
	src/ddp/wire/half.c \
	src/ddp/wire/hook.c \
	src/ddp/wire/int8.c \
	src/ddp/wire/pieces.h \
	src/ddp/wire/same.c \
	src/ddp/wire/wire.c \
	src/ddp/zero/create.c \
	src/ddp/zero/layout.c \
	src/ddp/zero/machine.c \
	src/ddp/zero/memory.c \
	src/ddp/zero/network.c \
	src/ddp/zero/query.c \
	src/ddp/zero/state.c \
	src/ddp/zero/step.c \
	src/ddp/zero/zero.h

# Square roots that set no errno vectorise.
libdist_optimizers_la_SOURCES = src/ddp/zero/adam.c src/ddp/zero/sgd.c
libdist_optimizers_la_CFLAGS = $(AM_CFLAGS) -fno-math-errno
noinst_LTLIBRARIES += libdist_optimizers.la
