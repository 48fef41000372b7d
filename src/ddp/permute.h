/* SPDX-License-Identifier: BSD-3-Clause */
/* Orders of any number of things, computed instead of stored. */
#ifndef DISTI_DDP_PERMUTE_H
#define DISTI_DDP_PERMUTE_H

#include <stdint.h>

/* Where `at` < count goes to in the order `key`: a bijection of 0 .. count - 1. */
uint64_t disti_permute(uint64_t count, uint64_t key, uint64_t at);

/* A key from two numbers; nearby ones give keys that have nothing in common. */
uint64_t disti_permute_key(uint64_t seed, uint64_t epoch);

#endif
