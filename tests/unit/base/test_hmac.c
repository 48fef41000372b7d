/* SPDX-License-Identifier: BSD-3-Clause */
/* SHA-256 and HMAC against FIPS 180-4's and RFC 4231's examples, in any pieces. */
#include "tests/unit/base/unit.h"

#include <stdio.h>
#include <string.h>

#include "base/net/hmac.h"

static void expect_hex(const unsigned char *bytes, const char *hex)
{
    char text[2 * DISTI_HMAC_BYTES + 1];

    for (int i = 0; i < DISTI_HMAC_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    assert_string_equal(text, hex);
}

static void expect_hash(const char *data, size_t bytes, size_t piece, const char *hex)
{
    unsigned char digest[DISTI_HMAC_BYTES];
    struct disti_sha256 hash;

    disti_sha256_begin(&hash);
    for (size_t at = 0; at < bytes; at += piece)
        disti_sha256_add(&hash, data + at, bytes - at < piece ? bytes - at : piece);
    disti_sha256_end(&hash, digest);
    expect_hex(digest, hex);
}

static void test_hash(void **state)
{
    static char many[1000000];

    (void)state;
    memset(many, 'a', sizeof(many));
    expect_hash("", 0, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect_hash("abc", 3, 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    for (size_t piece = 1; piece < 60; piece++)
        expect_hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, piece,
                    "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    expect_hash(many, sizeof(many), 1000,
                "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void expect_mac(const void *key, size_t key_bytes, const char *data, const char *hex)
{
    unsigned char mac[DISTI_HMAC_BYTES], again[DISTI_HMAC_BYTES];
    struct disti_hmac hmac;

    disti_hmac_begin(&hmac, key, key_bytes);
    disti_hmac_add(&hmac, data, strlen(data));
    disti_hmac_end(&hmac, mac);
    expect_hex(mac, hex);
    memcpy(again, mac, sizeof(mac));
    assert_true(disti_hmac_same(mac, again));
    again[31] ^= 1;
    assert_false(disti_hmac_same(mac, again));
}

static void test_mac(void **state)
{
    unsigned char key[131];

    (void)state;
    memset(key, 0x0b, 20);
    expect_mac(key, 20, "Hi There",
               "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    expect_mac("Jefe", 4, "what do ya want for nothing?",
               "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof(key));
    expect_mac(key, sizeof(key), "Test Using Larger Than Block-Size Key - Hash Key First",
               "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_mac),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
