/* SPDX-License-Identifier: BSD-3-Clause */
/* A few slots of scratch that a pipeline of partial sums goes through. */
#ifndef DISTI_COLLECTIVES_COMMON_WINDOW_H
#define DISTI_COLLECTIVES_COMMON_WINDOW_H

#include "plan/plan.h"

/*
 * Item i is written to slot first + i % slots once item i - slots has been sent:
 *
 *   items    0 1 2 3 | 4 5 6 7 | 8 ...        written: 5, sent: 2, so item 5 must wait for the
 *   slots    0 1 2 3   0 1 2 3   0            sending of item 1
 */
#define DISTI_WINDOW 4
struct disti_window {
    uint32_t first;
    struct disti_step_ref sent[DISTI_WINDOW]; /* by slot: what was there last has left by then */
};

static inline struct disti_window disti_window(struct disti_builder *b, uint32_t first)
{
    struct disti_window window = {.first = first};
    disti_build_scratch(b, first + DISTI_WINDOW);
    for (int i = 0; i < DISTI_WINDOW; i++)
        window.sent[i] = DISTI_NOW;
    return window;
}

static inline struct disti_chunk_ref disti_window_slot(const struct disti_window *window,
                                                       uint32_t item)
{
    return disti_scratch(window->first + item % DISTI_WINDOW);
}

#endif
