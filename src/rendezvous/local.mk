# SPDX-License-Identifier: BSD-3-Clause
libdist_core_sources += \
	src/rendezvous/door.c src/rendezvous/door.h \
	src/base/net/interface.c \
	src/rendezvous/launch.c \
	src/rendezvous/meet.h \
	src/rendezvous/meet_file.c \
	src/rendezvous/meet_local.c \
	src/rendezvous/meet_oob.c \
	src/rendezvous/meet_tcp.c \
	src/rendezvous/rendezvous.c src/rendezvous/rendezvous.h \
	src/rendezvous/slurm.c src/rendezvous/slurm.h \
	src/base/net/socket.c src/base/net/socket.h \
	src/rendezvous/store.c src/rendezvous/store.h \
	src/rendezvous/store_alarm.c \
	src/rendezvous/store_client.c src/rendezvous/store_client.h \
	src/rendezvous/store_connect.c \
	src/rendezvous/store_failures.c \
	src/rendezvous/store_gather.c \
	src/rendezvous/store_inbox.c \
	src/rendezvous/store_keys.c src/rendezvous/store_keys.h \
	src/rendezvous/store_peer.c \
	src/rendezvous/store_ranks.c \
	src/rendezvous/store_serve.c \
	src/rendezvous/store_server.c src/rendezvous/store_server.h \
	src/rendezvous/store_wait.c \
	src/rendezvous/store_wire.c src/rendezvous/store_wire.h \
	src/rendezvous/url.c
