# SPDX-License-Identifier: BSD-3-Clause
# Transport ucx, part of the ucx module.
ucx_module_sources += \
	src/transports/match/announced.c \
	src/transports/match/announced.h \
	src/transports/match/credit.h \
	src/transports/match/match.c \
	src/transports/match/match.h \
	src/transports/match/standin.c \
	src/transports/match/standin.h \
	src/transports/ucx/cancel.c \
	src/transports/ucx/context.c \
	src/transports/ucx/inbound.c \
	src/transports/ucx/peer.c \
	src/transports/ucx/phase.h \
	src/transports/ucx/pieces.c \
	src/transports/ucx/pull.c \
	src/transports/ucx/receive.c \
	src/transports/ucx/send.c \
	src/transports/ucx/state.h \
	src/transports/ucx/take.c \
	src/transports/ucx/ucx.c \
	src/transports/ucx/ucx.h
