/* SPDX-License-Identifier: BSD-3-Clause */
/* The GPU as a device: what it holds, and how kernels are launched. */
#ifndef TRAIN_CUDA_H
#define TRAIN_CUDA_H

#ifndef TRAIN_CUDA_ON_HOST /* else a test has brought what takes their place */
#include <cublas_v2.h>
#include <cuda_runtime.h>
#endif

#include "device.h"

/*
 * Everything is put on one stream, in the order in which the CPU would do it. Memory:
 *
 *     host      device->model (weights)   pinned[2]: batches on their way   ring: losses
 *                  | put, get                 | one copy a step                ^
 *     device    weights                    batch                               |
 *               activations, deltas, gradients --grid--> sums --(all-reduce)---+--> weights
 *
 * Without the grid the gradients are the sums.
 *
 * Nothing is added in an order that changes from run to run: no atomic sums. Compiled without
 * contraction of a * b + c, so that what is not a matrix product, a sum over a batch, or expf and
 * logf has the CPU's bits.
 */

enum {
    CUDA_THREADS = 256,                 /* of a block */
    CUDA_ROWS = 32,                     /* added by one thread */
    CUDA_CHUNK = 64,                    /* samples whose windows are multiplied at once */
    CUDA_OWNED = 40,                    /* allocations at most */
    CUDA_SLOTS = 2,                     /* batches between host and device */
    CUDA_GRID_STEPS = MODEL_MAX_TENSORS /* floats of a grid, as on the CPU */
};

/* A batch in memory of the device, or on its way there. */
struct cuda_batch {
    float *images;
    uint32_t *positions;
    uint8_t *labels;
};

struct cuda_result {
    double total;
    long long correct;
};

struct cuda;

/* One kind of layer: its work is put on the stream. As struct layer_kind. */
struct cuda_layer_kind {
    const char *name;
    void (*forward)(struct cuda *cuda, const struct layer *layer, const struct pass *pass,
                    const float *in, float *out);
    void (*backward)(struct cuda *cuda, const struct layer *layer, const struct pass *pass,
                     const float *in, const float *out, float *dout, float *din);
};

struct cuda {
    struct device device;
    const struct device_services *services;
    struct model *host; /* shapes and the host's copy of the weights */
    struct model model; /* the same shapes, with memory of the GPU */
    const struct cuda_layer_kind *kinds[MODEL_MAX_LAYERS];
    int gpu, world;
    bool rounds; /* to the grid */
    cudaStream_t stream;
    cublasHandle_t blas;
    cublasStatus_t blas_status; /* the first failure */

    bool adadelta;
    float momentum, weight_decay;
    float *first, *second; /* the optimizer's state, as in device.c */
    float *steps;          /* of the grid */
    unsigned *most;        /* magnitudes of the tensors' largest gradients */
    float *partial[2];     /* sums of rows on their way */
    float *losses;         /* of each sample */
    int *correct;
    struct cuda_result *result, *result_host;

    size_t batch_bytes;
    void *batch, *pinned[CUDA_SLOTS];
    cudaEvent_t copied[CUDA_SLOTS]; /* when pinned may be written again */
    bool copying[CUDA_SLOTS];
    int slot;
    float *ring; /* pinned: losses of the last DEVICE_AHEAD updates */
    int64_t updates;

    bool shared; /* sums is by dist_alloc */
    void *owned[CUDA_OWNED];
    int owned_count;
};

/* Numbers of an image. */
static inline size_t cuda_pixels(const struct cuda *cuda)
{
    return (size_t)shape_size(cuda->host->input);
}

/* -1 with a text if error is one. */
int cuda_check(struct cuda *cuda, cudaError_t error, const char *what);

/* The functions below put work on the stream; what fails is found by cuda_check_all. */

void cuda_forward(struct cuda *cuda, const struct pass *pass, const float *images);
void cuda_backward(struct cuda *cuda, const struct pass *pass, const float *images,
                   const struct model_listener *listener);
const struct cuda_layer_kind *cuda_find_layer(const char *name); /* NULL: there is none */

/* Of one micro-batch: losses, correct, result; gradient of the outputs unless it is NULL. */
void cuda_loss(struct cuda *cuda, int count, const uint8_t *labels, float weight, float *gradient);

/* The result's total times weight, behind the sums. For what is not rounded. */
void cuda_add_loss(struct cuda *cuda, float weight, bool add);

/* As grid_start, grid_add and grid_advance; the loss is the result's total times weight. */
int cuda_grid_start(struct cuda *cuda);
void cuda_grid_add(struct cuda *cuda, float weight, bool add);
void cuda_grid_advance(struct cuda *cuda);

/* As optimizer_step, from sums. */
void cuda_optimizer_step(struct cuda *cuda, float lr);

/* kernel(count, arguments...), a thread for each of count. */
#ifndef TRAIN_CUDA_ON_HOST
#define CUDA_LAUNCH(cuda, kernel, count, ...)                                                      \
    do {                                                                                           \
        const size_t cuda_count = (count);                                                         \
        const unsigned cuda_blocks = (unsigned)((cuda_count + CUDA_THREADS - 1) / CUDA_THREADS);   \
                                                                                                   \
        if (cuda_count > 0)                                                                        \
            kernel<<<cuda_blocks, CUDA_THREADS, 0, (cuda)->stream>>>(cuda_count, __VA_ARGS__);     \
    } while (0)
#endif

/* The number of this thread in a kernel that was launched so. */
static __device__ inline size_t cuda_index(void)
{
    return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}

#endif
