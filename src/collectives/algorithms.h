/* SPDX-License-Identifier: BSD-3-Clause */
/* The algorithms, for the table: one file each. */
#ifndef DISTI_COLLECTIVES_ALGORITHMS_H
#define DISTI_COLLECTIVES_ALGORITHMS_H

#include "plan/plan.h"

void disti_all_reduce_ring(const struct disti_shape *shape, struct disti_builder *b);
void disti_all_reduce_tree(const struct disti_shape *shape, struct disti_builder *b);
void disti_all_reduce_recursive_doubling(const struct disti_shape *shape, struct disti_builder *b);
void disti_all_reduce_halving_doubling(const struct disti_shape *shape, struct disti_builder *b);
void disti_all_reduce_direct(const struct disti_shape *shape, struct disti_builder *b);
void disti_all_reduce_direct_ordered(const struct disti_shape *shape, struct disti_builder *b);
void disti_all_reduce_hierarchical(const struct disti_shape *shape, struct disti_builder *b);
void disti_broadcast_binomial(const struct disti_shape *shape, struct disti_builder *b);
void disti_broadcast_chain(const struct disti_shape *shape, struct disti_builder *b);
void disti_broadcast_tree(const struct disti_shape *shape, struct disti_builder *b);
void disti_broadcast_scatter_all_gather(const struct disti_shape *shape, struct disti_builder *b);
void disti_barrier_dissemination(const struct disti_shape *shape, struct disti_builder *b);
void disti_barrier_tree(const struct disti_shape *shape, struct disti_builder *b);
void disti_all_gather_ring(const struct disti_shape *shape, struct disti_builder *b);
void disti_all_gather_direct(const struct disti_shape *shape, struct disti_builder *b);
void disti_all_gather_bruck(const struct disti_shape *shape, struct disti_builder *b);
void disti_all_gather_hierarchical(const struct disti_shape *shape, struct disti_builder *b);
void disti_reduce_binomial(const struct disti_shape *shape, struct disti_builder *b);
void disti_reduce_chain(const struct disti_shape *shape, struct disti_builder *b);
void disti_reduce_tree(const struct disti_shape *shape, struct disti_builder *b);
void disti_reduce_direct(const struct disti_shape *shape, struct disti_builder *b);
void disti_reduce_scatter_gather(const struct disti_shape *shape, struct disti_builder *b);
void disti_reduce_binomial_ordered(const struct disti_shape *shape, struct disti_builder *b);
void disti_reduce_direct_ordered(const struct disti_shape *shape, struct disti_builder *b);
void disti_reduce_scatter_direct(const struct disti_shape *shape, struct disti_builder *b);
void disti_reduce_scatter_direct_ordered(const struct disti_shape *shape, struct disti_builder *b);
void disti_reduce_scatter_hierarchical(const struct disti_shape *shape, struct disti_builder *b);
void disti_reduce_scatter_ring(const struct disti_shape *shape, struct disti_builder *b);
void disti_reduce_scatter_recursive_halving(const struct disti_shape *shape,
                                            struct disti_builder *b);
void disti_gather_direct(const struct disti_shape *shape, struct disti_builder *b);
void disti_gather_binomial(const struct disti_shape *shape, struct disti_builder *b);
void disti_scatter_direct(const struct disti_shape *shape, struct disti_builder *b);
void disti_scatter_binomial(const struct disti_shape *shape, struct disti_builder *b);
void disti_all_to_all_direct(const struct disti_shape *shape, struct disti_builder *b);
void disti_all_to_all_pairwise(const struct disti_shape *shape, struct disti_builder *b);
void disti_all_to_all_bruck(const struct disti_shape *shape, struct disti_builder *b);

#endif
