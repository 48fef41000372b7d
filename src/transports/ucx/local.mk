# SPDX-License-Identifier: BSD-3-Clause
# Transport ucx, part of the ucx module.
ucx_module_sources += \
	src/transports/announced.c \
	src/transports/announced.h \
	src/transports/credit.h \
	src/transports/match.c \
	src/transports/match.h \
	src/transports/standin.c \
	src/transports/standin.h \
	src/transports/ucx/cancel.c \
	src/transports/ucx/context.c \
	src/transports/ucx/inbound.c \
	src/transports/ucx/peer.c \
	src/transports/ucx/pieces.c \
	src/transports/ucx/pull.c \
	src/transports/ucx/receive.c \
	src/transports/ucx/send.c \
	src/transports/ucx/state.h \
	src/transports/ucx/take.c \
	src/transports/ucx/ucx.c \
	src/transports/ucx/ucx.h
