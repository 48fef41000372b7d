# SPDX-License-Identifier: BSD-3-Clause
libdist_core_sources += \
	src/transports/tcp/tcp.c src/transports/tcp/tcp.h \
	src/transports/tcp/cancel.c \
	src/transports/tcp/checksum.c \
	src/transports/tcp/connections/accept.c \
	src/transports/tcp/connections/call.c \
	src/transports/tcp/connections/conn.c src/transports/tcp/connections/conn.h \
	src/transports/tcp/connections/greet.c \
	src/transports/tcp/connections/leave.c \
	src/transports/tcp/connections/silence.c \
	src/transports/tcp/paths/congestion.c \
	src/transports/tcp/credit.c src/transports/tcp/credit.h \
	src/transports/tcp/paths/interfaces.c \
	src/transports/tcp/frame.c \
	src/transports/tcp/peer.c \
	src/transports/tcp/post.c \
	src/transports/tcp/probe.c \
	src/transports/tcp/queue.h \
	src/transports/tcp/receive.c \
	src/transports/tcp/send.c \
	src/transports/tcp/socket.c \
	src/transports/tcp/state.h \
	src/transports/tcp/stripes/receive.c \
	src/transports/tcp/stripes/send.c \
	src/transports/tcp/stripes/stripes.h \
	src/transports/tcp/paths/ways.c src/transports/tcp/paths/ways.h \
	src/transports/tcp/wire.c src/transports/tcp/wire.h \
	src/transports/tcp/zerocopy.c
