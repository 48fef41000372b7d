/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A Feistel network is a bijection of numbers of an even number of bits, whatever its round
 * function is (Luby and Rackoff, "How to construct pseudorandom permutations from pseudorandom
 * functions", SIAM Journal on Computing 17(2), 1988). Where it leaves 0 .. count - 1, it is applied
 * again until it comes back (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA
 * 2002): four times at most on average, for the bits are as few as will do.
 *
 *      left   right
 *        |      |
 *        +-mix--+        6 rounds
 *        |      |
 *         \    /
 *          \  /
 *          /  \
 */
#include "permute.h"

enum { PERMUTE_ROUNDS = 6 };

/* A bijection of 64 bits in which every input bit changes half of the output bits (splitmix64). */
static uint64_t permute_mix(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

uint64_t disti_permute_key(uint64_t seed, uint64_t epoch)
{
    return permute_mix(permute_mix(seed) ^ epoch);
}

/* Half the bits of the least even number of bits that count - 1 fits in, at least 1. */
static unsigned permute_half(uint64_t count)
{
    unsigned half = 1;

    while (half < 32 && (count - 1) >> (2 * half) != 0)
        half++;
    return half;
}

static uint64_t permute_once(unsigned half, uint64_t key, uint64_t at)
{
    const uint64_t mask = (UINT64_C(1) << half) - 1;
    uint64_t left = at >> half, right = at & mask;

    for (int round = 0; round < PERMUTE_ROUNDS; round++) {
        uint64_t mixed = permute_mix(permute_mix(right ^ key) + (uint64_t)round);
        uint64_t next = left ^ (mixed & mask);

        left = right;
        right = next;
    }
    return left << half | right;
}

uint64_t disti_permute(uint64_t count, uint64_t key, uint64_t at)
{
    const unsigned half = permute_half(count);

    do
        at = permute_once(half, key, at);
    while (at >= count);
    return at;
}
