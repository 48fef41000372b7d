/* SPDX-License-Identifier: BSD-3-Clause */
/* Floats that go to the other ranks: in memory which those of this machine can read in place. */
#ifndef TRAIN_BUFFER_H
#define TRAIN_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

#include <dist/dist.h>

struct buffer {
    float *floats; /* NULL: none */
    bool shared;   /* by dist_alloc */
};

/*
 * Zeroed, aligned to a cache line. Ordinary memory if group is NULL, or dist_alloc gives memory of
 * a GPU; with a warning on stderr if dist_alloc fails: training goes on, only slower. -1: out of
 * memory, without a text.
 */
int buffer_create(dist_group *group, size_t count, struct buffer *buffer);

/* Whether the group is still there or not. A zeroed buffer is accepted. */
void buffer_destroy(struct buffer *buffer);

#endif
