# SPDX-License-Identifier: BSD-3-Clause
# What the transports share; each has its own local.mk in its folder.
libdist_core_sources += \
	src/transports/match/match.c \
	src/transports/match/match.h

libdist_core_sources += \
	src/transports/faulty/faulty.c \
	src/transports/faulty/faulty.h

# Transport shm: ranks of one machine.
libdist_core_sources += \
	src/transports/shm/connection.c \
	src/transports/shm/receive.c \
	src/transports/shm/send.c \
	src/transports/shm/shm.c \
	src/transports/shm/shm.h \
	src/transports/shm/state.h

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

# Transport mpi, part of the mpi module, which is built once for each MPI.
mpi_module_sources += \
	src/transports/match/match.c \
	src/transports/match/match.h \
	src/transports/mpi/message.c \
	src/transports/mpi/mpi.c \
	src/transports/mpi/mpi.h \
	src/transports/mpi/state.h

# Transport ucx, part of the ucx module.
ucx_module_sources += \
	src/transports/match/match.c \
	src/transports/match/match.h \
	src/transports/ucx/receive.c \
	src/transports/ucx/send.c \
	src/transports/ucx/state.h \
	src/transports/ucx/ucx.c \
	src/transports/ucx/ucx.h
