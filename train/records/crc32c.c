/* SPDX-License-Identifier: BSD-3-Clause */
/* CRC-32C, a bit at a time: records are a hundred bytes. */
#include "crc32c.h"

uint32_t crc32c(const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    uint32_t crc = 0xffffffff;

    while (size-- > 0) {
        crc ^= *at++;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    }
    return ~crc;
}

uint32_t crc32c_masked(const void *bytes, size_t size)
{
    const uint32_t crc = crc32c(bytes, size);

    return (crc >> 15 | crc << 17) + 0xa282ead8;
}
