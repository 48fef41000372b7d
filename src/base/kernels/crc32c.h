/* SPDX-License-Identifier: BSD-3-Clause */
/* CRC-32C (Castagnoli), to detect damaged data. */
#ifndef DISTI_BASE_KERNELS_CRC32C_H
#define DISTI_BASE_KERNELS_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Returns `crc` extended by these bytes; start with 0. */
uint32_t disti_crc32c(uint32_t crc, const void *data, size_t bytes);

/* As disti_crc32c, with tables, for CPUs without the instruction. */
uint32_t disti_crc32c_tables(uint32_t crc, const void *data, size_t bytes);

#endif
