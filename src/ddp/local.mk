# SPDX-License-Identifier: BSD-3-Clause
# Data-parallel training.
libdist_core_sources += \
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
	src/ddp/wire/wire.c
