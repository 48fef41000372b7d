/* SPDX-License-Identifier: BSD-3-Clause */
/* Bias and relu, which follow every matrix product; one pass over memory for both. */
#include <string.h>

#include "train/model/kernel.h"
#include "train/model/layer.h"

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

KERNEL static void bias_relu(int rows, int columns, float *out)
{
    const size_t count = (size_t)rows * columns;

#pragma omp simd
    for (size_t i = 0; i < count; i++)
        out[i] = out[i] > 0.0F ? out[i] : 0.0F;
}

void bias_forward(int rows, int columns, const float *bias, bool relu, float *out)
{
    if (bias && relu)
        bias_add_relu(rows, columns, bias, out);
    else if (bias)
        bias_add(rows, columns, bias, out);
    else if (relu)
        bias_relu(rows, columns, out);
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

KERNEL static void bias_cut(int rows, int columns, const float *out, float *dout)
{
    const size_t count = (size_t)rows * columns;

#pragma omp simd
    for (size_t i = 0; i < count; i++)
        dout[i] = out[i] > 0.0F ? dout[i] : 0.0F;
}

void bias_backward(int rows, int columns, const float *out, bool relu, bool add, float *dout,
                   float *dbias)
{
    if (!dbias) {
        if (relu)
            bias_cut(rows, columns, out, dout);
        return;
    }
    if (!add)
        memset(dbias, 0, (size_t)columns * sizeof(*dbias));
    if (relu)
        bias_sum_relu(rows, columns, out, dout, dbias);
    else
        bias_sum(rows, columns, dout, dbias);
}
