# SPDX-License-Identifier: BSD-3-Clause
# Transport shm: ranks of one machine.
libdist_core_sources += \
	src/transports/shm/connection.c \
	src/transports/shm/receive.c \
	src/transports/shm/send.c \
	src/transports/shm/shm.c \
	src/transports/shm/shm.h \
	src/transports/shm/state.h
