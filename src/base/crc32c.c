/* SPDX-License-Identifier: BSD-3-Clause */
/* CRC-32C with the instruction of x86-64 CPUs, or with tables for eight bytes at a time. */
#include "base/kernels/crc32c.h"

#include <endian.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define CRC32C_POLYNOMIAL 0x82f63b78u /* bit-reversed */

/* crc32c_tables[k][b]: CRC of byte b followed by k zero bytes. */
static uint32_t crc32c_tables[8][256];

static void crc32c_fill(void)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;

        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? CRC32C_POLYNOMIAL : 0);
        crc32c_tables[0][byte] = crc;
    }
    for (int k = 1; k < 8; k++) {
        for (unsigned byte = 0; byte < 256; byte++) {
            uint32_t before = crc32c_tables[k - 1][byte];

            crc32c_tables[k][byte] = before >> 8 ^ crc32c_tables[0][before & 0xff];
        }
    }
}

uint32_t disti_crc32c_tables(uint32_t crc, const void *data, size_t bytes)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const unsigned char *at = data;

    pthread_once(&once, crc32c_fill);
    crc = ~crc;
    for (; bytes >= 8; at += 8, bytes -= 8) {
        uint64_t word;

        memcpy(&word, at, sizeof(word));
        word = le64toh(word) ^ crc;
        crc = 0;
        for (int k = 0; k < 8; k++)
            crc ^= crc32c_tables[7 - k][word >> (8 * k) & 0xff];
    }
    for (; bytes > 0; at++, bytes--)
        crc = crc >> 8 ^ crc32c_tables[0][(crc ^ *at) & 0xff];
    return ~crc;
}

#if defined(__x86_64__)
#include <nmmintrin.h>

__attribute__((target("sse4.2"))) static uint32_t crc32c_instruction(uint32_t crc, const void *data,
                                                                     size_t bytes)
{
    const unsigned char *at = data;
    uint64_t wide = ~crc;

    for (; bytes >= 8; at += 8, bytes -= 8) {
        uint64_t word;

        memcpy(&word, at, sizeof(word));
        wide = _mm_crc32_u64(wide, word);
    }
    crc = (uint32_t)wide;
    for (; bytes > 0; at++, bytes--)
        crc = _mm_crc32_u8(crc, *at);
    return ~crc;
}

uint32_t disti_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    static signed char known; /* tested once, since cpuid is slow in virtual machines */
    signed char answer = __atomic_load_n(&known, __ATOMIC_RELAXED);

    if (answer == 0) {
        __builtin_cpu_init();
        answer = __builtin_cpu_supports("sse4.2") ? 1 : -1;
        __atomic_store_n(&known, answer, __ATOMIC_RELAXED);
    }
    return answer > 0 ? crc32c_instruction(crc, data, bytes)
                      : disti_crc32c_tables(crc, data, bytes);
}
#else
uint32_t disti_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    return disti_crc32c_tables(crc, data, bytes);
}
#endif
