/* SPDX-License-Identifier: BSD-3-Clause */
/* An element of any dtype from a double, and back. */
#ifndef BENCH_NUMBER_H
#define BENCH_NUMBER_H

#include <dist/dist.h>

/* value must be a whole number; integers wrap. A float16 beyond its range becomes infinite. */
void number_write(dist_dtype dtype, double value, void *element);
double number_read(dist_dtype dtype, const void *element);

#endif
