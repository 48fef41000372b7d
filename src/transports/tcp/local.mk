# SPDX-License-Identifier: BSD-3-Clause
libdist_core_sources += \
	src/transports/tcp/tcp.c src/transports/tcp/tcp.h \
	src/transports/tcp/accept.c \
	src/transports/tcp/conn.c \
	src/transports/tcp/peer.c \
	src/transports/tcp/receive.c \
	src/transports/tcp/send.c \
	src/transports/tcp/congestion.c \
	src/transports/tcp/socket.c \
	src/transports/tcp/state.h \
	src/transports/tcp/wire.c src/transports/tcp/wire.h
