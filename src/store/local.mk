# SPDX-License-Identifier: BSD-3-Clause
# The store: its server, its clients, its wire format.
libdist_core_sources += \
	src/store/client.c \
	src/store/client.h \
	src/store/connect.c \
	src/store/ranks.c \
	src/store/last_call.c \
	src/store/server.c \
	src/store/server.h \
	src/store/store.h \
	src/store/wire.c \
	src/store/wire.h
