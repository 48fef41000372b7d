/* SPDX-License-Identifier: BSD-3-Clause */
/* SHA-256 and HMAC, for a few hundred bytes a connection. */
#include "base/net/hmac.h"

#include <string.h>

/* The fractional parts of the cube roots of the first 64 primes. */
static const uint32_t sha256_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t sha256_rotate(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static uint32_t sha256_word(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static void sha256_schedule(const unsigned char *block, uint32_t w[64])
{
    for (int i = 0; i < 16; i++)
        w[i] = sha256_word(block + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];

        w[i] = w[i - 16] + w[i - 7] + (sha256_rotate(a, 7) ^ sha256_rotate(a, 18) ^ a >> 3) +
               (sha256_rotate(b, 17) ^ sha256_rotate(b, 19) ^ b >> 10);
    }
}

static void sha256_block(uint32_t state[8], const unsigned char *block)
{
    uint32_t w[64], s[8];

    sha256_schedule(block, w);
    memcpy(s, state, sizeof(s));
    for (int i = 0; i < 64; i++) {
        uint32_t e = sha256_rotate(s[4], 6) ^ sha256_rotate(s[4], 11) ^ sha256_rotate(s[4], 25);
        uint32_t a = sha256_rotate(s[0], 2) ^ sha256_rotate(s[0], 13) ^ sha256_rotate(s[0], 22);
        uint32_t first = s[7] + e + ((s[4] & s[5]) ^ (~s[4] & s[6])) + sha256_constants[i] + w[i];
        uint32_t second = a + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));

        memmove(s + 1, s, 7 * sizeof(s[0]));
        s[4] += first;
        s[0] = first + second;
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

void disti_sha256_begin(struct disti_sha256 *hash)
{
    /* The fractional parts of the square roots of the first 8 primes. */
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

    memcpy(hash->state, first, sizeof(first));
    hash->bytes = 0;
}

void disti_sha256_add(struct disti_sha256 *hash, const void *data, size_t bytes)
{
    const unsigned char *from = data;

    while (bytes) {
        size_t at = hash->bytes % 64, n = 64 - at < bytes ? 64 - at : bytes;

        memcpy(hash->block + at, from, n);
        hash->bytes += n;
        from += n;
        bytes -= n;
        if (at + n == 64)
            sha256_block(hash->state, hash->block);
    }
}

void disti_sha256_end(struct disti_sha256 *hash, unsigned char digest[DISTI_HMAC_BYTES])
{
    static const unsigned char padding[64] = {0x80};
    uint64_t bits = hash->bytes * 8;
    unsigned char length[8];

    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    disti_sha256_add(hash, padding, 1 + (119 - hash->bytes % 64) % 64);
    disti_sha256_add(hash, length, sizeof(length));
    for (int i = 0; i < DISTI_HMAC_BYTES; i++)
        digest[i] = (unsigned char)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
}

void disti_hmac_begin(struct disti_hmac *hmac, const void *key, size_t key_bytes)
{
    unsigned char inner_key[64] = {0};

    if (key_bytes > sizeof(inner_key)) {
        disti_sha256_begin(&hmac->inner);
        disti_sha256_add(&hmac->inner, key, key_bytes);
        disti_sha256_end(&hmac->inner, inner_key);
    } else if (key_bytes) {
        memcpy(inner_key, key, key_bytes);
    }
    for (int i = 0; i < 64; i++) {
        hmac->outer_key[i] = inner_key[i] ^ 0x5c;
        inner_key[i] ^= 0x36;
    }
    disti_sha256_begin(&hmac->inner);
    disti_sha256_add(&hmac->inner, inner_key, sizeof(inner_key));
}

void disti_hmac_add(struct disti_hmac *hmac, const void *data, size_t bytes)
{
    disti_sha256_add(&hmac->inner, data, bytes);
}

void disti_hmac_end(struct disti_hmac *hmac, unsigned char mac[DISTI_HMAC_BYTES])
{
    struct disti_sha256 outer;
    unsigned char digest[DISTI_HMAC_BYTES];

    disti_sha256_end(&hmac->inner, digest);
    disti_sha256_begin(&outer);
    disti_sha256_add(&outer, hmac->outer_key, sizeof(hmac->outer_key));
    disti_sha256_add(&outer, digest, sizeof(digest));
    disti_sha256_end(&outer, mac);
}

bool disti_hmac_same(const unsigned char a[DISTI_HMAC_BYTES],
                     const unsigned char b[DISTI_HMAC_BYTES])
{
    unsigned char different = 0;

    for (int i = 0; i < DISTI_HMAC_BYTES; i++)
        different |= a[i] ^ b[i];
    return different == 0;
}
