# SPDX-License-Identifier: BSD-3-Clause
# Transport ucx, part of the ucx module.
ucx_module_sources += \
	src/transports/match/match.c \
	src/transports/match/match.h \
	src/transports/ucx/receive.c \
	src/transports/ucx/send.c \
	src/transports/ucx/state.h \
	src/transports/ucx/ucx.c \
	src/transports/ucx/ucx.h
