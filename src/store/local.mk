# SPDX-License-Identifier: BSD-3-Clause
# The store: its server, its clients, its wire format.
libdist_core_sources += \
	src/store/alarm.c \
	src/store/blob.c \
	src/store/blob.h \
	src/store/client.c \
	src/store/client.h \
	src/store/server/coll.c \
	src/store/server/coll.h \
	src/store/server/coll_end.c \
	src/store/connect.c \
	src/store/server/admission.c \
	src/store/server/failures.c \
	src/store/server/leavings.c \
	src/store/handed.c src/store/handed.h \
	src/store/hello.c \
	src/store/inbox.c \
	src/store/last_call.c src/store/last_call.h \
	src/store/server/peer.c \
	src/store/server/ranks.c \
	src/store/server/schedule.c \
	src/store/server/serve.c \
	src/store/server/server.c \
	src/store/server/server.h \
	src/store/store.c \
	src/store/store.h \
	src/store/wire.c \
	src/store/wire.h
