/* SPDX-License-Identifier: BSD-3-Clause */
/* HMAC-SHA-256 of data in one or several pieces, compared with the examples of RFC 4231. */
#include "tests/unit/base/unit.h"

#include <stdio.h>
#include <string.h>

#include "launch/agents/message.h"

static void expect_hex(const unsigned char *bytes, const char *hex)
{
    char text[2 * DISTI_HMAC_BYTES + 1];

    for (int i = 0; i < DISTI_HMAC_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    assert_string_equal(text, hex);
}

static void expect_mac(const void *key, size_t key_bytes, const char *data, const char *hex)
{
    unsigned char mac[DISTI_HMAC_BYTES], again[DISTI_HMAC_BYTES];
    size_t half = strlen(data) / 2;
    const struct disti_hmac_piece pieces[] = {{data, half}, {data + half, strlen(data) - half}};
    const struct disti_hmac_piece whole = {data, strlen(data)};

    disti_hmac(key, key_bytes, &whole, 1, mac);
    expect_hex(mac, hex);
    disti_hmac(key, key_bytes, pieces, 2, mac);
    expect_hex(mac, hex);
    memcpy(again, mac, sizeof(mac));
    assert_true(disti_hmac_same(mac, again));
    again[31] ^= 1;
    assert_false(disti_hmac_same(mac, again));
}

static void test_hmac_matches_rfc_4231(void **state)
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

/* Agents with the same job secret derive the same token from the one that is sent; other agents
 * derive another one. */
static void test_the_store_token_depends_on_the_secret(void **state)
{
    struct agents_transcript job = {.secret = "a secret", .secret_bytes = 8, .job = "a job"};
    char sent[AGENTS_SECRET] = "0123456789abcdef0123456789abcdef", tokens[4][AGENTS_SECRET];

    (void)state;
    for (int i = 0; i < 4; i++) {
        if (i == 2)
            job.secret = "a secreT";
        if (i == 3)
            job.secret_bytes = 0;
        memcpy(tokens[i], sent, sizeof(sent));
        disti_agents_store_word(&job, tokens[i]);
        assert_int_equal(strspn(tokens[i], "0123456789abcdef"), 32);
    }
    assert_string_equal(tokens[0], tokens[1]);
    assert_string_not_equal(tokens[0], sent);
    assert_string_not_equal(tokens[0], tokens[2]);
    assert_string_equal(tokens[3], sent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hmac_matches_rfc_4231),
        cmocka_unit_test(test_the_store_token_depends_on_the_secret),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
