# SPDX-License-Identifier: BSD-3-Clause
# The floor of collective algorithms.
libdist_core_sources += \
	src/collectives/algorithms.c \
	src/collectives/algorithms.h \
	src/collectives/all_gather_bruck.c \
	src/collectives/all_gather_direct.c \
	src/collectives/all_gather_ring.c \
	src/collectives/all_reduce_direct.c \
	src/collectives/all_reduce_halving_doubling.c \
	src/collectives/all_reduce_hierarchical.c \
	src/collectives/all_reduce_recursive_doubling.c \
	src/collectives/all_reduce_ring.c \
	src/collectives/all_reduce_tree.c \
	src/collectives/barrier_dissemination.c \
	src/collectives/barrier_tree.c \
	src/collectives/broadcast_binomial.c \
	src/collectives/broadcast_chain.c \
	src/collectives/broadcast_tree.c \
	src/collectives/builder.c \
	src/collectives/chain.h \
	src/collectives/fold.h \
	src/collectives/phase_direct.c \
	src/collectives/phase_ring.c \
	src/collectives/phases.h \
	src/collectives/plan.c \
	src/collectives/plan.h \
	src/collectives/plan_check.c \
	src/collectives/plan_check.h \
	src/collectives/reduce_binomial.c \
	src/collectives/reduce_chain.c \
	src/collectives/reduce_direct.c \
	src/collectives/reduce_scatter_direct.c \
	src/collectives/reduce_scatter_gather.c \
	src/collectives/reduce_scatter_recursive_halving.c \
	src/collectives/reduce_scatter_ring.c \
	src/collectives/reduce_tree.c \
	src/collectives/select.c \
	src/collectives/select.h \
	src/collectives/send_recv.c \
	src/collectives/verify.c \
	src/collectives/verify.h \
	src/collectives/verify_internal.h \
	src/collectives/verify_match.c \
	src/collectives/verify_race.c \
	src/collectives/verify_run.c \
	src/collectives/window.h
