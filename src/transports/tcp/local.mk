# SPDX-License-Identifier: BSD-3-Clause
libdist_core_sources += \
	src/transports/tcp/tcp.c src/transports/tcp/tcp.h \
	src/transports/tcp/tcp_accept.c \
	src/transports/tcp/tcp_cancel.c \
	src/transports/tcp/tcp_congestion.c \
	src/transports/tcp/tcp_credit.c src/transports/tcp/tcp_credit.h \
	src/transports/tcp/tcp_interfaces.c \
	src/transports/tcp/tcp_leave.c \
	src/transports/tcp/tcp_peer.c \
	src/transports/tcp/tcp_probe.c \
	src/transports/tcp/tcp_rails.c \
	src/transports/tcp/tcp_receive.c \
	src/transports/tcp/tcp_send.c \
	src/transports/tcp/tcp_silence.c \
	src/transports/tcp/tcp_socket.c \
	src/transports/tcp/tcp_state.h \
	src/transports/tcp/tcp_stripe_receive.c \
	src/transports/tcp/tcp_stripe_send.c \
	src/transports/tcp/tcp_stripes.h \
	src/transports/tcp/tcp_ways.c src/transports/tcp/tcp_ways.h \
	src/transports/tcp/tcp_wire.c src/transports/tcp/tcp_wire.h \
	src/transports/tcp/tcp_zerocopy.c
