# SPDX-License-Identifier: BSD-3-Clause
# The collective algorithms.
libdist_core_sources += \
	src/collectives/algorithms.c \
	src/collectives/algorithms.def \
	src/collectives/algorithms.h \
	src/collectives/all_gather.c \
	src/collectives/all_reduce.c \
	src/collectives/all_to_all.c \
	src/collectives/barrier.c \
	src/collectives/broadcast.c \
	src/collectives/gather.c \
	src/collectives/reduce.c \
	src/collectives/reduce_scatter.c \
	src/collectives/scatter.c
