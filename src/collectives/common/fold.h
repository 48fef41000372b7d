/* SPDX-License-Identifier: BSD-3-Clause */
/* Folding a number of ranks that is no power of two onto one that is. */
#ifndef DISTI_COLLECTIVES_COMMON_FOLD_H
#define DISTI_COLLECTIVES_COMMON_FOLD_H

/*
 * With 2^rounds + surplus ranks, positions 2 i and 2 i + 1 (i < surplus) are partners: the odd one
 * is folded into the even one. Those that stay have the virtual ranks 0 ..
 * 2^rounds - 1:
 *
 *   position      0   1   2   3   4   5       6 ranks: rounds 2, surplus 2
 *   virtual rank  0 <-+   1 <-+   2   3
 */
struct disti_fold {
    int rounds, surplus;
    int virtual_rank; /* -1: folded into the partner */
    int partner;      /* position; -1: none */
};

static inline struct disti_fold disti_fold(int ranks, int position)
{
    struct disti_fold fold = {.rounds = 0, .partner = -1};
    while (ranks >> (fold.rounds + 1))
        fold.rounds++;
    fold.surplus = ranks - (1 << fold.rounds);
    fold.virtual_rank = position - fold.surplus;
    if (position < 2 * fold.surplus) {
        fold.partner = position ^ 1;
        fold.virtual_rank = position % 2 ? -1 : position / 2;
    }
    return fold;
}

static inline int disti_fold_position(const struct disti_fold *fold, int virtual_rank)
{
    return virtual_rank < fold->surplus ? 2 * virtual_rank : virtual_rank + fold->surplus;
}

#endif
