/* SPDX-License-Identifier: BSD-3-Clause */
/* The fingerprint of a call: ranks that call different things find out by it. */
#include "engine/state.h"

#include <stdio.h>

/*
 *   63        60 59      54 53  50 49          32 31            0
 *  | collective | dtype    | op   | root         | count mod 2^32 |
 */
uint64_t disti_fingerprint(const struct dist_call *call)
{
    return (uint64_t)call->collective << 60 | (uint64_t)call->dtype << 54 |
           (uint64_t)call->op << 50 | (uint64_t)((unsigned)call->root & 0x3ffff) << 32 |
           (uint32_t)call->count;
}

void disti_fingerprint_text(uint64_t fingerprint, char *text, size_t size)
{
    dist_collective collective = (dist_collective)(fingerprint >> 60);

    snprintf(text, size, "%s(count %u, %s, %s, root %u)", dist_collective_string(collective),
             (unsigned)(uint32_t)fingerprint,
             dist_dtype_string((dist_dtype)(fingerprint >> 54 & 0x3f)),
             dist_op_string((dist_op)(fingerprint >> 50 & 0xf)),
             (unsigned)(fingerprint >> 32 & 0x3ffff));
}
