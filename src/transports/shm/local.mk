# SPDX-License-Identifier: BSD-3-Clause
# Transport shm: ranks of one machine.
libdist_core_sources += \
	src/transports/shm/announce.c \
	src/transports/shm/call.c \
	src/transports/shm/cancel.c \
	src/transports/shm/accept.c \
	src/transports/shm/fifo.h \
	src/transports/shm/hello.c \
	src/transports/shm/hello.h \
	src/transports/shm/connection.c \
	src/transports/shm/connection.h \
	src/transports/shm/loan.c \
	src/transports/shm/machine.c \
	src/transports/shm/machine.h \
	src/transports/shm/memory.c \
	src/transports/shm/memory.h \
	src/transports/shm/receive.c \
	src/transports/shm/send.c \
	src/transports/shm/shm.c \
	src/transports/shm/shm.h \
	src/transports/shm/state.h \
	src/transports/shm/watch.c
