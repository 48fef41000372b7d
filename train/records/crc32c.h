/* SPDX-License-Identifier: BSD-3-Clause */
/* The checksum of TensorBoard's records: CRC-32C (Castagnoli; RFC 3720). */
#ifndef TRAIN_RECORDS_CRC32C_H
#define TRAIN_RECORDS_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32c(const void *bytes, size_t size);

/* Turned and shifted, so that a record may hold checksums itself. */
uint32_t crc32c_masked(const void *bytes, size_t size);

#endif
