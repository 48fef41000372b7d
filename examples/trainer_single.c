/* SPDX-License-Identifier: BSD-3-Clause */
/* Logistic regression by gradient descent on made-up data; docs/embedding.md shows both forms. */
#include <math.h>
#include <stdio.h>

#define FEATURES 32
#define SAMPLES 8192
#define CHECKED 1024 /* additional samples for the loss, not used for training */
#define BATCH 512
#define EPOCHS 5
#define RATE 0.5f

static float data[SAMPLES + CHECKED][FEATURES], label[SAMPLES + CHECKED];
static float weight[FEATURES + 1], gradient[FEATURES + 1]; /* the last element is the bias */

static unsigned state = 1;
static float uniform(void)
{
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / 8388608.0f - 1.0f;
}

static void make_data(void)
{
    for (int i = 0; i < SAMPLES + CHECKED; i++) {
        float sum = 0.1f * uniform();
        for (int f = 0; f < FEATURES; f++)
            sum += (data[i][f] = uniform()) * (f % 2 ? 1.0f : -0.5f);
        label[i] = sum > 0 ? 1.0f : 0.0f;
    }
    for (int f = 0; f < FEATURES + 1; f++)
        weight[f] = 0.1f * uniform();
}

static float predict(int i)
{
    float z = weight[FEATURES];
    for (int f = 0; f < FEATURES; f++)
        z += weight[f] * data[i][f];
    return 1.0f / (1.0f + expf(-z));
}

/* Adds the gradient of sample i. */
static void learn(int i, float share)
{
    float error = (predict(i) - label[i]) * share;
    for (int f = 0; f < FEATURES; f++)
        gradient[f] += error * data[i][f];
    gradient[FEATURES] += error;
}

static float loss_of(int i)
{
    float p = predict(i);
    return -logf(label[i] > 0 ? p + 1e-7f : 1 - p + 1e-7f);
}

int main(void)
{
    make_data();
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        for (int start = 0; start < SAMPLES; start += BATCH) {
            for (int f = 0; f < FEATURES + 1; f++)
                gradient[f] = 0;
            for (int i = start; i < start + BATCH; i++)
                learn(i, 1.0f / BATCH);
            for (int f = 0; f < FEATURES + 1; f++)
                weight[f] -= RATE * gradient[f];
        }
        float loss = 0;
        for (int i = SAMPLES; i < SAMPLES + CHECKED; i++)
            loss += loss_of(i) / CHECKED;
        printf("epoch %d: loss %.5f\n", epoch + 1, (double)loss);
    }
    return 0;
}
