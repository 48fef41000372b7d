/* SPDX-License-Identifier: BSD-3-Clause */
/* A trainer of one process: logistic regression by gradient descent on made-up data. */
#include <math.h>
#include <stdio.h>

#define FEATURES 32
#define SAMPLES 8192
#define BATCH 512
#define EPOCHS 5
#define RATE 0.5f

static float data[SAMPLES][FEATURES], label[SAMPLES];
static float weight[FEATURES + 1], gradient[FEATURES + 2]; /* the last two: bias, loss */

static unsigned state = 1;
static float uniform(void)
{
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / 8388608.0f - 1.0f;
}

static void make_data(void)
{
    for (int i = 0; i < SAMPLES; i++) {
        float sum = 0.1f * uniform();
        for (int f = 0; f < FEATURES; f++)
            sum += (data[i][f] = uniform()) * (f % 2 ? 1.0f : -0.5f);
        label[i] = sum > 0 ? 1.0f : 0.0f;
    }
}

/* Adds sample i's part of the gradient and of the loss. */
static void learn(int i, float share)
{
    float z = weight[FEATURES];
    for (int f = 0; f < FEATURES; f++)
        z += weight[f] * data[i][f];
    float p = 1.0f / (1.0f + expf(-z)), error = (p - label[i]) * share;
    for (int f = 0; f < FEATURES; f++)
        gradient[f] += error * data[i][f];
    gradient[FEATURES] += error;
    gradient[FEATURES + 1] -= share * logf(label[i] > 0 ? p + 1e-7f : 1 - p + 1e-7f);
}

int main(void)
{
    make_data();
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        float loss = 0;
        for (int start = 0; start < SAMPLES; start += BATCH) {
            for (int f = 0; f < FEATURES + 2; f++)
                gradient[f] = 0;
            for (int i = start; i < start + BATCH; i++)
                learn(i, 1.0f / BATCH);
            for (int f = 0; f < FEATURES + 1; f++)
                weight[f] -= RATE * gradient[f];
            loss += gradient[FEATURES + 1] * BATCH / SAMPLES;
        }
        printf("epoch %d: loss %.5f\n", epoch + 1, (double)loss);
    }
    return 0;
}
