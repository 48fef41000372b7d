/* SPDX-License-Identifier: BSD-3-Clause */
/* HMAC-SHA-256, which OpenSSL computes. */
#include "launch/agents/hmac.h"

#include <config.h>

#include <sys/random.h>

/* So that two that could not be made are not the same. */
static void hmac_fail(unsigned char mac[DISTI_HMAC_BYTES])
{
    while (getrandom(mac, DISTI_HMAC_BYTES, 0) != DISTI_HMAC_BYTES)
        ;
}

#ifdef HAVE_OPENSSL
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

bool disti_hmac_exists(void)
{
    return true;
}

static bool hmac_compute(EVP_MAC_CTX *context, const void *key, size_t key_bytes,
                         const struct disti_hmac_piece *pieces, int count,
                         unsigned char mac[DISTI_HMAC_BYTES])
{
    char digest[] = "SHA256";
    const OSSL_PARAM settings[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_end(),
    };
    size_t bytes = 0;

    if (!context || !EVP_MAC_init(context, key, key_bytes, settings))
        return false;
    for (int i = 0; i < count; i++) {
        if (!EVP_MAC_update(context, pieces[i].data, pieces[i].bytes))
            return false;
    }
    return EVP_MAC_final(context, mac, &bytes, DISTI_HMAC_BYTES) && bytes == DISTI_HMAC_BYTES;
}

void disti_hmac(const void *key, size_t key_bytes, const struct disti_hmac_piece *pieces, int count,
                unsigned char mac[DISTI_HMAC_BYTES])
{
    EVP_MAC *kind = EVP_MAC_fetch(NULL, OSSL_MAC_NAME_HMAC, NULL);
    EVP_MAC_CTX *context = kind ? EVP_MAC_CTX_new(kind) : NULL;

    if (!hmac_compute(context, key, key_bytes, pieces, count, mac))
        hmac_fail(mac);
    EVP_MAC_CTX_free(context);
    EVP_MAC_free(kind);
}

bool disti_hmac_same(const unsigned char a[DISTI_HMAC_BYTES],
                     const unsigned char b[DISTI_HMAC_BYTES])
{
    return CRYPTO_memcmp(a, b, DISTI_HMAC_BYTES) == 0;
}

#else
#include <string.h>

bool disti_hmac_exists(void)
{
    return false;
}

void disti_hmac(const void *key, size_t key_bytes, const struct disti_hmac_piece *pieces, int count,
                unsigned char mac[DISTI_HMAC_BYTES])
{
    (void)key, (void)key_bytes, (void)pieces, (void)count;
    hmac_fail(mac);
}

bool disti_hmac_same(const unsigned char a[DISTI_HMAC_BYTES],
                     const unsigned char b[DISTI_HMAC_BYTES])
{
    return memcmp(a, b, DISTI_HMAC_BYTES) == 0;
}
#endif
