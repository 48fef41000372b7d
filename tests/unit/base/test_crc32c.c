/* SPDX-License-Identifier: BSD-3-Clause */
/* CRC-32C compared with known values, and the CPU's instruction with the tables. */
#include "base/kernels/crc32c.h"

#include "unit.h"

#include <string.h>

#define ROOM 1024

/* The values of RFC 3720, B.4, and the usual check value of CRC catalogues. */
static void test_known_values(void **state)
{
    static const unsigned char zeros[32];
    unsigned char bytes[32];

    (void)state;
    assert_int_equal(disti_crc32c(0, "", 0), 0);
    assert_true(disti_crc32c(0, "123456789", 9) == 0xe3069283u);
    assert_true(disti_crc32c(0, zeros, 32) == 0x8a9136aau);
    memset(bytes, 0xff, sizeof(bytes));
    assert_true(disti_crc32c(0, bytes, 32) == 0x62a8ab43u);
    for (unsigned char i = 0; i < 32; i++)
        bytes[i] = i;
    assert_true(disti_crc32c(0, bytes, 32) == 0x46dd794eu);
}

static void test_instruction_and_tables_agree(void **state)
{
    unsigned char bytes[ROOM];
    uint64_t seed = 1;

    (void)state;
    for (size_t i = 0; i < ROOM; i++)
        bytes[i] = (unsigned char)unit_random(&seed);
    for (size_t begin = 0; begin < 16; begin++) {
        for (size_t length = 0; length + begin <= 300; length++) {
            uint32_t whole = disti_crc32c(0, bytes + begin, length);
            size_t half = length / 3;

            assert_true(whole == disti_crc32c_tables(0, bytes + begin, length));
            assert_true(whole == disti_crc32c(disti_crc32c(0, bytes + begin, half),
                                              bytes + begin + half, length - half));
        }
    }
}

/* Every change of a single bit is detected. */
static void test_single_bit_errors_are_detected(void **state)
{
    unsigned char bytes[64] = {1, 2, 3};
    uint32_t right = disti_crc32c(0, bytes, sizeof(bytes));

    (void)state;
    for (size_t bit = 0; bit < 8 * sizeof(bytes); bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_true(disti_crc32c(0, bytes, sizeof(bytes)) != right);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_instruction_and_tables_agree),
        cmocka_unit_test(test_single_bit_errors_are_detected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
