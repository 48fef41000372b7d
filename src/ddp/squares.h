/* SPDX-License-Identifier: BSD-3-Clause */
/* The sum of squares of gradients; of DDP and of the sharded optimizer. */
#ifndef DISTI_DDP_SQUARES_H
#define DISTI_DDP_SQUARES_H

#include <stddef.h>

/* The order of additions depends on the count alone. */
double disti_squares_f32(const float *x, size_t count);

#endif
