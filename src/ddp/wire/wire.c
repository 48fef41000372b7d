/* SPDX-License-Identifier: BSD-3-Clause */
/* The forms in which gradients travel. */
#include "ddp/ddp.h"

static const struct ddp_wire *const wires[] = {
    [DIST_DDP_WIRE_SAME] = &disti_wire_same,
    [DIST_DDP_WIRE_FLOAT16] = &disti_wire_float16,
    [DIST_DDP_WIRE_BFLOAT16] = &disti_wire_bfloat16,
    [DIST_DDP_WIRE_INT8] = &disti_wire_int8,
};

const struct ddp_wire *disti_ddp_wire(const struct dist_ddp_options *options)
{
    return options->hook ? &disti_wire_hook : wires[options->wire];
}
