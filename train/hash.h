/* SPDX-License-Identifier: BSD-3-Clause */
/* A 64-bit hash of memory, to see whether the ranks hold the same parameters. */
#ifndef TRAIN_HASH_H
#define TRAIN_HASH_H

#include <stddef.h>
#include <stdint.h>

/*
 * Depends on every bit and on the order. For finding accidents, not for keeping out
 * attackers.
 */
uint64_t hash_floats(const float *floats, size_t count);

#endif
