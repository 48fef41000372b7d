# SPDX-License-Identifier: BSD-3-Clause
# The floor of collective algorithms.
libdist_core_sources += \
	src/collectives/algorithms.c \
	src/collectives/algorithms.def \
	src/collectives/algorithms.h \
	src/collectives/common/chain.h \
	src/collectives/common/fold.h \
	src/collectives/common/phases.h \
	src/collectives/common/subtree.c \
	src/collectives/common/subtree.h \
	src/collectives/common/window.h

# Rows: from algorithms.def, by scripts/algorithms.
libdist_core_sources += \
	src/collectives/all_gather/bruck.c \
	src/collectives/all_gather/direct.c \
	src/collectives/all_gather/hierarchical.c \
	src/collectives/all_gather/neighbour_exchange.c \
	src/collectives/all_gather/ring.c \
	src/collectives/all_reduce/direct.c \
	src/collectives/all_reduce/direct_ordered.c \
	src/collectives/all_reduce/halving_doubling.c \
	src/collectives/all_reduce/hierarchical.c \
	src/collectives/all_reduce/recursive_doubling.c \
	src/collectives/all_reduce/ring.c \
	src/collectives/all_reduce/tree.c \
	src/collectives/all_to_all/bruck.c \
	src/collectives/all_to_all/direct.c \
	src/collectives/all_to_all/pairwise.c \
	src/collectives/barrier/dissemination.c \
	src/collectives/barrier/tree.c \
	src/collectives/broadcast/binomial.c \
	src/collectives/broadcast/chain.c \
	src/collectives/broadcast/scatter_all_gather.c \
	src/collectives/broadcast/tree.c \
	src/collectives/gather/binomial.c \
	src/collectives/gather/direct.c \
	src/collectives/reduce/binomial.c \
	src/collectives/reduce/binomial_ordered.c \
	src/collectives/reduce/chain.c \
	src/collectives/reduce/direct.c \
	src/collectives/reduce/direct_ordered.c \
	src/collectives/reduce/scatter_gather.c \
	src/collectives/reduce/tree.c \
	src/collectives/reduce_scatter/direct.c \
	src/collectives/reduce_scatter/direct_ordered.c \
	src/collectives/reduce_scatter/hierarchical.c \
	src/collectives/reduce_scatter/recursive_halving.c \
	src/collectives/reduce_scatter/ring.c \
	src/collectives/scatter/binomial.c \
	src/collectives/scatter/direct.c
# Rows end.
