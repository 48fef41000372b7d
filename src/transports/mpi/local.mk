# SPDX-License-Identifier: BSD-3-Clause
# Transport mpi, part of the mpi module, which is built once for each MPI.
mpi_module_sources += \
	src/transports/match/match.c \
	src/transports/match/match.h \
	src/transports/mpi/message.c \
	src/transports/mpi/mpi.c \
	src/transports/mpi/mpi.h \
	src/transports/mpi/state.h
