/* SPDX-License-Identifier: BSD-3-Clause */
/* Bias and relu, which follow every matrix product; one pass over memory for both. */
#include <string.h>

#include "kernel.h"
#include "layer.h"

KERNEL static void bias_add(int rows, int columns, const float *bias, float *out)
{
    for (int row = 0; row < rows; row++, out += columns) {
#pragma omp simd
        for (int i = 0; i < columns; i++)
            out[i] += bias[i];
    }
}

KERNEL static void bias_add_relu(int rows, int columns, const float *bias, float *out)
{
    for (int row = 0; row < rows; row++, out += columns) {
#pragma omp simd
        for (int i = 0; i < columns; i++) {
            const float x = out[i] + bias[i];

            out[i] = x > 0.0F ? x : 0.0F;
        }
    }
}

void bias_forward(int rows, int columns, const float *bias, bool relu, float *out)
{
    if (relu)
        bias_add_relu(rows, columns, bias, out);
    else
        bias_add(rows, columns, bias, out);
}

KERNEL static void bias_sum(int rows, int columns, const float *dout, float *dbias)
{
    for (int row = 0; row < rows; row++, dout += columns) {
#pragma omp simd
        for (int i = 0; i < columns; i++)
            dbias[i] += dout[i];
    }
}

KERNEL static void bias_sum_relu(int rows, int columns, const float *out, float *dout, float *dbias)
{
    for (int row = 0; row < rows; row++, out += columns, dout += columns) {
#pragma omp simd
        for (int i = 0; i < columns; i++) {
            const float x = out[i] > 0.0F ? dout[i] : 0.0F;

            dout[i] = x;
            dbias[i] += x;
        }
    }
}

void bias_backward(int rows, int columns, const float *out, bool relu, float *dout, float *dbias)
{
    memset(dbias, 0, (size_t)columns * sizeof(*dbias));
    if (relu)
        bias_sum_relu(rows, columns, out, dout, dbias);
    else
        bias_sum(rows, columns, dout, dbias);
}
