# SPDX-License-Identifier: BSD-3-Clause
# Code that all transports share, and the built-in transports.
libdist_core_sources += \
	src/transports/faulty/faulty.c \
	src/transports/faulty/faulty.h \
	src/transports/match/match.c \
	src/transports/match/match.h \
	src/transports/shm/connection.c \
	src/transports/shm/shm.c \
	src/transports/shm/shm.h \
	src/transports/shm/state.h \
	src/transports/tcp/conn.c \
	src/transports/tcp/receive.c \
	src/transports/tcp/send.c \
	src/transports/tcp/socket.c \
	src/transports/tcp/state.h \
	src/transports/tcp/tcp.c \
	src/transports/tcp/tcp.h \
	src/transports/tcp/wire.c \
	src/transports/tcp/wire.h

# Transport mpi, part of the mpi module. It is built once for each MPI.
mpi_module_sources += \
	src/transports/match/match.c \
	src/transports/match/match.h \
	src/transports/mpi/mpi.c \
	src/transports/mpi/mpi.h \
	src/transports/mpi/runtime.c

# Transport ucx, part of the ucx module.
ucx_module_sources += \
	src/transports/match/match.c \
	src/transports/match/match.h \
	src/transports/ucx/receive.c \
	src/transports/ucx/send.c \
	src/transports/ucx/state.h \
	src/transports/ucx/ucx.c \
	src/transports/ucx/ucx.h
