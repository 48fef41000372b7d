/* SPDX-License-Identifier: BSD-3-Clause */
/* CRC-32C (Castagnoli), which tells damaged bytes from those that were sent. */
#ifndef DISTI_BASE_KERNELS_CRC32C_H
#define DISTI_BASE_KERNELS_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Of what `crc` is of, and then these bytes; 0 is of none. */
uint32_t disti_crc32c(uint32_t crc, const void *data, size_t bytes);

/* The same by tables, for CPUs without the instruction. */
uint32_t disti_crc32c_tables(uint32_t crc, const void *data, size_t bytes);

#endif
