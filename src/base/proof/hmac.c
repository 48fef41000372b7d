/* SPDX-License-Identifier: BSD-3-Clause */
/* HMAC-SHA-256, over the hash of OpenSSL; without that a hash that keeps nothing secret. */
#include "base/proof/hmac.h"

#include <config.h>

#ifdef HAVE_OPENSSL
/*
 * The hash alone is from OpenSSL, by its oldest interface: the new one begins by loading providers
 * and a configuration, which takes each process more than a millisecond. A job starts many.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <string.h>

bool disti_hmac_exists(void)
{
    return true;
}

/* The key as long as a block of the hash, with each byte changed: RFC 2104's inner or outer pad. */
static void hmac_begin(SHA256_CTX *hash, const unsigned char key[SHA256_CBLOCK], unsigned char pad)
{
    unsigned char block[SHA256_CBLOCK];

    for (int i = 0; i < SHA256_CBLOCK; i++)
        block[i] = key[i] ^ pad;
    SHA256_Init(hash);
    SHA256_Update(hash, block, sizeof(block));
    OPENSSL_cleanse(block, sizeof(block));
}

void disti_hmac(const void *key, size_t key_bytes, const struct disti_hmac_piece *pieces, int count,
                unsigned char mac[DISTI_HMAC_BYTES])
{
    unsigned char block[SHA256_CBLOCK] = {0}, inner[DISTI_HMAC_BYTES];
    SHA256_CTX hash;

    if (key_bytes <= sizeof(block)) {
        memcpy(block, key, key_bytes);
    } else {
        SHA256_Init(&hash);
        SHA256_Update(&hash, key, key_bytes);
        SHA256_Final(block, &hash);
    }
    hmac_begin(&hash, block, 0x36);
    for (int i = 0; i < count; i++)
        SHA256_Update(&hash, pieces[i].data, pieces[i].bytes);
    SHA256_Final(inner, &hash);
    hmac_begin(&hash, block, 0x5c);
    SHA256_Update(&hash, inner, sizeof(inner));
    SHA256_Final(mac, &hash);
    OPENSSL_cleanse(block, sizeof(block));
}

bool disti_hmac_same(const unsigned char a[DISTI_HMAC_BYTES],
                     const unsigned char b[DISTI_HMAC_BYTES])
{
    return CRYPTO_memcmp(a, b, DISTI_HMAC_BYTES) == 0;
}

#else
#include "base/hash.h"

#include <string.h>

bool disti_hmac_exists(void)
{
    return false;
}

/* Tells jobs apart, as the names of jobs would. */
void disti_hmac(const void *key, size_t key_bytes, const struct disti_hmac_piece *pieces, int count,
                unsigned char mac[DISTI_HMAC_BYTES])
{
    uint64_t hash = disti_hash_bytes(DISTI_HASH_START, key, key_bytes);

    for (int i = 0; i < count; i++)
        hash = disti_hash_bytes(hash, pieces[i].data, pieces[i].bytes);
    for (int i = 0; i < DISTI_HMAC_BYTES; i++)
        mac[i] = (unsigned char)(hash >> 8 * (i % 8));
}

bool disti_hmac_same(const unsigned char a[DISTI_HMAC_BYTES],
                     const unsigned char b[DISTI_HMAC_BYTES])
{
    return memcmp(a, b, DISTI_HMAC_BYTES) == 0;
}
#endif
