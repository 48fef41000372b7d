/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The GPU device: layers, loss, grid and optimizer as kernels, with the layouts and formulas of
 * layers.c, model.c and device.c. Batches are copied to the GPU and losses to the host; all other
 * data stay on the GPU.
 */
#include <stdlib.h>
#include <string.h>

#ifndef TRAIN_CUDA_ON_HOST /* otherwise a test has defined replacements */
#include <cublas_v2.h>
#include <cuda_runtime.h>
#endif

#include "device.h"
#include "rng.h"

/*
 * All work is queued on one stream, in the same order as on the CPU. Memory:
 *
 *     host      device->model (weights)   pinned[2]: batches in transfer    ring: losses
 *                  | put, get                 | one copy per step              ^
 *     device    weights                    batch                               |
 *               activations, deltas, gradients --grid--> sums --(all-reduce)---+--> weights
 *
 * Without the grid, the gradients are the sums.
 *
 * The order of all additions is deterministic: there are no atomic sums. The file is compiled
 * without contraction of a * b + c. Therefore all results have the same bits as on the CPU, except
 * matrix products, sums over a batch, and expf and logf.
 */

enum {
    CUDA_THREADS = 256, /* per block */
    CUDA_ROWS = 32,     /* rows added by one thread */
    CUDA_CHUNK = 64,    /* samples whose windows are multiplied together */
    CUDA_OWNED = 40,    /* maximum number of allocations */
    CUDA_SLOTS = 2      /* batches in transfer between host and device */
};

/* A batch in device memory, or in pinned memory before the transfer. */
struct cuda_batch {
    float *images;
    uint32_t *positions;
    uint8_t *labels;
};

struct cuda_result {
    double total;
    long long correct;
};

static const struct device_services *cuda_services;

struct cuda;

/*
 * The GPU counterpart of struct layer_kind: functions that queue the work of a layer on the stream.
 */
struct cuda_layer_kind {
    const char *name;
    void (*forward)(struct cuda *cuda, const struct layer *layer, const struct pass *pass,
                    const float *in, float *out);
    void (*backward)(struct cuda *cuda, const struct layer *layer, const struct pass *pass,
                     const float *in, const float *out, float *dout, float *din);
};

struct cuda {
    struct device device;
    struct model *host; /* shapes, and the host's copy of the weights */
    struct model model; /* the same shapes, with pointers to GPU memory */
    const struct cuda_layer_kind *kinds[MODEL_MAX_LAYERS];
    int gpu, world;
    bool rounds; /* the sums are rounded to the grid */
    cudaStream_t stream;
    cublasHandle_t blas;
    cublasStatus_t blas_status; /* the first error */

    bool adadelta;
    float momentum, weight_decay;
    float *state[OPTIMIZER_STATES]; /* state of the optimizer, as in device.c */
    float *steps;                   /* grid steps */
    unsigned *most;                 /* bits of each tensor's largest gradient, without the sign */
    float *partial[2];              /* partial sums of rows */
    float *losses;                  /* loss of each sample */
    int *correct;
    struct cuda_result *result, *result_host;

    size_t batch_bytes;
    void *batch, *pinned[CUDA_SLOTS];
    cudaEvent_t copied[CUDA_SLOTS]; /* recorded after the copy, when pinned may be overwritten */
    bool copying[CUDA_SLOTS];
    int slot;
    float *ring; /* pinned: losses of the last DEVICE_AHEAD updates */
    int64_t updates;

    bool shared; /* sums was allocated by dist_alloc */
    void *owned[CUDA_OWNED];
    int owned_count;
};

/* Returns the number of values per image. */
static inline size_t cuda_pixels(const struct cuda *cuda)
{
    return (size_t)shape_size(cuda->host->input);
}

/* Runs kernel(count, arguments...) with one thread for each index below count. */
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

/* Returns the index of this thread in a kernel started with CUDA_LAUNCH. */
static __device__ inline size_t cuda_index(void)
{
    return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}

/* Returns 0, or -1 with a message if error is not cudaSuccess. */
static int cuda_check(struct cuda *cuda, cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return 0;
    return cuda_services->failure("GPU %d: %s: %s", cuda->gpu, what, cudaGetErrorString(error));
}

static int cuda_check_blas(struct cuda *cuda, cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return 0;
    return cuda_services->failure("GPU %d: cuBLAS: %s: status %d", cuda->gpu, what, (int)status);
}

/* Reports errors of kernel launches and matrix products since the last call. */
static int cuda_check_all(struct cuda *cuda)
{
    return cuda_check(cuda, cudaGetLastError(), "a kernel") < 0
               ? -1
               : cuda_check_blas(cuda, cuda->blas_status, "a matrix product");
}

/* ---- kernels ---- */

/* Like gemm(). cuBLAS uses column-major order, so this computes the transposed product. */
static void cuda_gemm(struct cuda *cuda, bool transpose_a, bool transpose_b, int m, int n, int k,
                      const float *a, const float *b, bool add, float *c)
{
    const float one = 1.0F, old = add ? 1.0F : 0.0F;
    const cublasStatus_t status =
        cublasSgemm(cuda->blas, transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                    transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, n, m, k, &one, b, transpose_b ? k : n,
                    a, transpose_a ? m : k, &old, c, n);

    if (cuda->blas_status == CUBLAS_STATUS_SUCCESS)
        cuda->blas_status = status;
}

/* ---- bias and relu ---- */

static __global__ void cuda_bias(size_t count, int columns, const float *bias, bool relu,
                                 float *out)
{
    const size_t i = cuda_index();
    float x;

    if (i >= count)
        return;
    x = out[i] + bias[i % (size_t)columns];
    out[i] = relu && !(x > 0.0F) ? 0.0F : x;
}

static __global__ void cuda_cut(size_t count, const float *out, float *dout)
{
    const size_t i = cuda_index();

    if (i < count && !(out[i] > 0.0F))
        dout[i] = 0.0F;
}

/*
 * Each thread (row, column) of `to` sums CUDA_ROWS rows of `from` in ascending order, and adds the
 * existing value if `add`.
 */
static __global__ void cuda_add_rows(size_t count, int rows, int columns, const float *from,
                                     bool add, float *to)
{
    const size_t i = cuda_index();
    const int first = (int)(i / (size_t)columns) * CUDA_ROWS;
    const int last = first + CUDA_ROWS < rows ? first + CUDA_ROWS : rows;
    float sum = 0.0F;

    if (i >= count)
        return;
    for (int row = first; row < last; row++)
        sum += from[(size_t)row * columns + i % (size_t)columns];
    to[i] = (add ? to[i] : 0.0F) + sum;
}

static void cuda_bias_backward(struct cuda *cuda, int rows, int columns, const float *out,
                               bool relu, bool add, float *dout, float *dbias)
{
    const float *from = dout;

    if (relu)
        CUDA_LAUNCH(cuda, cuda_cut, (size_t)rows * columns, out, dout);
    for (int round = 0, sums; rows > 0; round++, rows = sums > 1 ? sums : 0) {
        float *to;

        sums = (rows + CUDA_ROWS - 1) / CUDA_ROWS;
        to = sums > 1 ? cuda->partial[round % 2] : dbias;
        CUDA_LAUNCH(cuda, cuda_add_rows, (size_t)sums * columns, rows, columns, from,
                    add && sums == 1, to);
        from = to;
    }
}

/* ---- convolution ---- */

/* Copies windows to rows, (samples * pixels) x (kernel * run): see layers.c. */
static __global__ void cuda_gather(size_t count, struct shape in, struct shape out, int kernel,
                                   const float *from, float *windows)
{
    const size_t i = cuda_index();
    const size_t run = (size_t)kernel * in.channels, depth = run * kernel;
    const size_t pixel = i / depth, column = i % depth;
    const size_t pixels = (size_t)out.height * out.width;
    const size_t y = pixel % pixels / out.width + column / run, x = pixel % out.width;
    const size_t sample = pixel / pixels * in.height * in.width * in.channels;

    if (i < count)
        windows[i] = from[sample + (y * in.width + x) * in.channels + column % run];
}

/* Sets din[i] to the sum over the windows that contain pixel i, in their order. */
static __global__ void cuda_scatter_add(size_t count, struct shape in, struct shape out, int kernel,
                                        const float *dwindows, float *din)
{
    const size_t i = cuda_index();
    const int channel = (int)(i % in.channels);
    const int x = (int)(i / in.channels % in.width);
    const int y = (int)(i / in.channels / in.width % in.height);
    const size_t sample = i / in.channels / in.width / in.height;
    const size_t depth = (size_t)kernel * kernel * in.channels;
    float sum = 0.0F;

    if (i >= count)
        return;
    for (int top = y < kernel ? 0 : y - kernel + 1; top <= y && top < out.height; top++) {
        for (int left = x < kernel ? 0 : x - kernel + 1; left <= x && left < out.width; left++) {
            const size_t window = (sample * out.height + top) * out.width + left;
            const size_t place = ((size_t)(y - top) * kernel + (x - left)) * in.channels + channel;

            sum += dwindows[window * depth + place];
        }
    }
    din[i] = sum;
}

static void cuda_conv_windows(struct cuda *cuda, const struct layer *layer, int samples,
                              const float *in)
{
    const size_t pixels = (size_t)samples * layer->out.height * layer->out.width;

    CUDA_LAUNCH(cuda, cuda_gather, pixels * layer->spatial * layer->inputs, layer->in, layer->out,
                layer->kernel, in, layer->scratch);
}

static void cuda_conv_forward(struct cuda *cuda, const struct layer *layer, const struct pass *pass,
                              const float *in, float *out)
{
    const int depth = layer->spatial * layer->inputs, channels = layer->out.channels;

    for (int i = 0; i < pass->batch; i += CUDA_CHUNK) {
        const int samples = pass->batch - i < CUDA_CHUNK ? pass->batch - i : CUDA_CHUNK;
        const int rows = samples * layer->out.height * layer->out.width;
        float *to = out + (size_t)i * shape_size(layer->out);

        cuda_conv_windows(cuda, layer, samples, in + (size_t)i * shape_size(layer->in));
        cuda_gemm(cuda, false, false, rows, channels, depth, layer->scratch, layer->weight, false,
                  to);
        CUDA_LAUNCH(cuda, cuda_bias, (size_t)rows * channels, channels, layer->bias, layer->relu,
                    to);
    }
}

static void cuda_conv_backward(struct cuda *cuda, const struct layer *layer,
                               const struct pass *pass, const float *in, const float *out,
                               float *dout, float *din)
{
    const int depth = layer->spatial * layer->inputs, channels = layer->out.channels;
    const int pixels = layer->out.height * layer->out.width;

    cuda_bias_backward(cuda, pass->batch * pixels, channels, out, layer->relu, pass->add, dout,
                       layer->dbias);
    for (int i = 0; i < pass->batch; i += CUDA_CHUNK) {
        const int samples = pass->batch - i < CUDA_CHUNK ? pass->batch - i : CUDA_CHUNK;
        const float *from = dout + (size_t)i * shape_size(layer->out);
        const size_t begin = (size_t)i * shape_size(layer->in);

        cuda_conv_windows(cuda, layer, samples, in + begin);
        cuda_gemm(cuda, true, false, depth, channels, samples * pixels, layer->scratch, from,
                  i > 0 || pass->add, layer->dweight);
        if (!din)
            continue;
        cuda_gemm(cuda, false, true, samples * pixels, depth, channels, from, layer->weight, false,
                  layer->scratch);
        CUDA_LAUNCH(cuda, cuda_scatter_add, (size_t)samples * shape_size(layer->in), layer->in,
                    layer->out, layer->kernel, layer->scratch, din + begin);
    }
}

/* ---- dense ---- */

static void cuda_dense_forward(struct cuda *cuda, const struct layer *layer,
                               const struct pass *pass, const float *in, float *out)
{
    const int channels = layer->out.channels;

    cuda_gemm(cuda, false, false, pass->batch, channels, shape_size(layer->in), in, layer->weight,
              false, out);
    CUDA_LAUNCH(cuda, cuda_bias, (size_t)pass->batch * channels, channels, layer->bias, layer->relu,
                out);
}

static void cuda_dense_backward(struct cuda *cuda, const struct layer *layer,
                                const struct pass *pass, const float *in, const float *out,
                                float *dout, float *din)
{
    const int inputs = shape_size(layer->in), channels = layer->out.channels;

    cuda_bias_backward(cuda, pass->batch, channels, out, layer->relu, pass->add, dout,
                       layer->dbias);
    cuda_gemm(cuda, true, false, inputs, channels, pass->batch, in, dout, pass->add,
              layer->dweight);
    if (din)
        cuda_gemm(cuda, false, true, pass->batch, inputs, channels, dout, layer->weight, false,
                  din);
}

/* ---- pool ---- */

/* Returns the index in `in` where the window of element i of `out` begins. */
static __device__ inline size_t cuda_pool_at(size_t i, struct shape in, struct shape out)
{
    const size_t channel = i % out.channels, x = i / out.channels % out.width;
    const size_t y = i / out.channels / out.width % out.height;
    const size_t sample = i / out.channels / out.width / out.height;

    return ((sample * in.height + 2 * y) * in.width + 2 * x) * in.channels + channel;
}

static __device__ inline float cuda_larger(float a, float b)
{
    return a > b ? a : b;
}

static __global__ void cuda_pool(size_t count, struct shape in, struct shape out, const float *from,
                                 float *to)
{
    const size_t i = cuda_index(), right = in.channels, down = (size_t)in.width * in.channels;
    const float *at = from + cuda_pool_at(i, in, out);

    if (i < count)
        to[i] = cuda_larger(cuda_larger(at[0], at[right]), cuda_larger(at[down], at[down + right]));
}

/* The gradient goes to the first of the four pixels that equals the maximum. */
static __global__ void cuda_pool_back(size_t count, struct shape in, struct shape out,
                                      const float *from, const float *most, const float *dout,
                                      float *din)
{
    const size_t i = cuda_index(), right = in.channels, down = (size_t)in.width * in.channels;
    const size_t at = cuda_pool_at(i, in, out);
    float rest;

    if (i >= count)
        return;
    rest = dout[i];
    for (int k = 0; k < 4; k++) {
        const size_t place = at + (k / 2) * down + (k % 2) * right;
        const bool equal = from[place] == most[i];

        din[place] = equal ? rest : 0.0F;
        rest = equal ? 0.0F : rest;
    }
}

static void cuda_pool_forward(struct cuda *cuda, const struct layer *layer, const struct pass *pass,
                              const float *in, float *out)
{
    CUDA_LAUNCH(cuda, cuda_pool, (size_t)pass->batch * shape_size(layer->out), layer->in,
                layer->out, in, out);
}

static void cuda_pool_backward(struct cuda *cuda, const struct layer *layer,
                               const struct pass *pass, const float *in, const float *out,
                               float *dout, float *din)
{
    if (din)
        CUDA_LAUNCH(cuda, cuda_pool_back, (size_t)pass->batch * shape_size(layer->out), layer->in,
                    layer->out, in, out, dout, din);
}

/* ---- dropout ---- */

/* Uses the same random numbers as layers.c: by sample and step. */
struct cuda_draw {
    uint64_t seed, step, layer;
    uint32_t threshold;
    float scale;
};

static __global__ void cuda_drop(size_t count, int size, struct cuda_draw draw,
                                 const uint32_t *positions, const float *from, float *to)
{
    const size_t i = cuda_index();
    uint64_t key;

    if (i >= count)
        return;
    key =
        rng_key(draw.seed, RNG_DROPOUT, draw.step, draw.layer << 32 | positions[i / (size_t)size]);
    to[i] = (rng_u32(key, (uint32_t)(i % (size_t)size)) >> 8) < draw.threshold
                ? 0.0F
                : from[i] * draw.scale;
}

static void cuda_dropout_apply(struct cuda *cuda, const struct layer *layer,
                               const struct pass *pass, const float *from, float *to)
{
    const struct cuda_draw draw = {pass->seed, pass->step, (uint64_t)layer->index,
                                   (uint32_t)(layer->rate * 0x1p24F), 1.0F / (1.0F - layer->rate)};
    const int size = shape_size(layer->in);

    CUDA_LAUNCH(cuda, cuda_drop, (size_t)pass->batch * size, size, draw, pass->positions, from, to);
}

static void cuda_dropout_forward(struct cuda *cuda, const struct layer *layer,
                                 const struct pass *pass, const float *in, float *out)
{
    if (pass->training)
        cuda_dropout_apply(cuda, layer, pass, in, out);
    else
        cudaMemcpyAsync(out, in, (size_t)pass->batch * shape_size(layer->in) * sizeof(*out),
                        cudaMemcpyDeviceToDevice, cuda->stream);
}

static void cuda_dropout_backward(struct cuda *cuda, const struct layer *layer,
                                  const struct pass *pass, const float *, const float *,
                                  float *dout, float *din)
{
    if (din)
        cuda_dropout_apply(cuda, layer, pass, dout, din);
}

/* ---- table of layers ---- */

static const struct cuda_layer_kind cuda_layer_kinds[] = {
    {"conv", cuda_conv_forward, cuda_conv_backward},
    {"dense", cuda_dense_forward, cuda_dense_backward},
    {"pool", cuda_pool_forward, cuda_pool_backward},
    {"dropout", cuda_dropout_forward, cuda_dropout_backward},
};

static void cuda_forward(struct cuda *cuda, const struct pass *pass, const float *images)
{
    struct model *model = &cuda->model;

    for (int i = 0; i < model->count; i++)
        cuda->kinds[i]->forward(cuda, &model->layers[i], pass,
                                i > 0 ? model->activations[i - 1] : images, model->activations[i]);
}

/* ---- loss ---- */

/* Computes the loss and the gradient of one sample per thread. */
static __global__ void cuda_nll(size_t count, const float *outputs, const uint8_t *labels,
                                float weight, float *gradient, float *losses, int *correct)
{
    const size_t row = cuda_index();
    const float *out = outputs + row * MODEL_CLASSES;
    float sum = 0.0F, log_sum;
    int best = 0;

    if (row >= count)
        return;
    for (int i = 1; i < MODEL_CLASSES; i++)
        best = out[i] > out[best] ? i : best;
    for (int i = 0; i < MODEL_CLASSES; i++)
        sum += expf(out[i] - out[best]);
    log_sum = out[best] + logf(sum);
    losses[row] = log_sum - out[labels[row]];
    correct[row] = best == labels[row];
    for (int i = 0; gradient && i < MODEL_CLASSES; i++)
        gradient[row * MODEL_CLASSES + i] =
            (expf(out[i] - log_sum) - (i == labels[row] ? 1.0F : 0.0F)) * weight;
}

/* A single thread sums in double, in the same order as the CPU. */
static __global__ void cuda_total(size_t count, int samples, const float *losses,
                                  const int *correct, struct cuda_result *result)
{
    struct cuda_result sum = {0.0, 0};

    if (cuda_index() >= count)
        return;
    for (int i = 0; i < samples; i++) {
        sum.total += (double)losses[i];
        sum.correct += correct[i];
    }
    *result = sum;
}

/*
 * Computes losses, correct and result of one micro-batch, and the gradient with respect to the
 * outputs unless it is NULL.
 */
static void cuda_loss(struct cuda *cuda, int count, const uint8_t *labels, float weight,
                      float *gradient)
{
    const float *outputs = cuda->model.activations[cuda->model.count - 1];

    CUDA_LAUNCH(cuda, cuda_nll, (size_t)count, outputs, labels, weight, gradient, cuda->losses,
                cuda->correct);
    CUDA_LAUNCH(cuda, cuda_total, 1, count, cuda->losses, cuda->correct, cuda->result);
}

/* ---- grid ---- */

/*
 * Rounds gradients to the grid and updates *most. *most only grows, so reading an outdated value
 * costs an unnecessary atomic operation but never loses a maximum.
 */
static __global__ void cuda_round(size_t count, const float *step, float scale, bool add,
                                  const float *from, float *to, unsigned *most)
{
    const size_t i = cuda_index();
    float shift, rounded;
    unsigned size;

    if (i >= count)
        return;
    shift = grid_shift(*step * scale);
    size = __float_as_uint(from[i]) & 0x7fffffffu;
    if (size > *(volatile unsigned *)most)
        atomicMax(most, size);
    rounded = (from[i] + shift) - shift;
    to[i] = add ? to[i] + rounded : rounded;
}

/*
 * Fills the tail of the sums: thread 0 the loss, the other threads the largest gradient of each
 * tensor.
 */
static __global__ void cuda_tail(size_t count, const struct cuda_result *result, float weight,
                                 const unsigned *most, bool add, float *tail)
{
    const size_t i = cuda_index();
    float x;

    if (i >= count)
        return;
    x = i == 0 ? (float)(result->total * (double)weight) : grid_power(__uint_as_float(most[i - 1]));
    tail[i] = (add ? tail[i] : 0.0F) + x;
}

static __global__ void cuda_advance(size_t count, const float *largest, float *steps)
{
    const size_t i = cuda_index();

    if (i < count)
        steps[i] = ldexpf(grid_power(largest[i]), -GRID_BITS);
}

/* ---- optimizer ---- */

static __global__ void cuda_sgd(size_t count, float momentum, float decay, float lr,
                                const float *gradients, float *velocity, float *weights)
{
    const size_t i = cuda_index();

    if (i >= count)
        return;
    velocity[i] = momentum * velocity[i] + (gradients[i] + decay * weights[i]);
    weights[i] -= lr * velocity[i];
}

static __global__ void cuda_adadelta(size_t count, float rho, float epsilon, float decay, float lr,
                                     const float *gradients, float *squares, float *moves,
                                     float *weights)
{
    const size_t i = cuda_index();
    float g, square, move;

    if (i >= count)
        return;
    g = gradients[i] + decay * weights[i];
    square = rho * squares[i] + (1.0F - rho) * (g * g);
    move = sqrtf((moves[i] + epsilon) / (square + epsilon)) * g;
    squares[i] = square;
    moves[i] = rho * moves[i] + (1.0F - rho) * (move * move);
    weights[i] -= lr * move;
}

/* ---- initialisation: GPU, stream ---- */

/*
 * Allocates the sums with dist_alloc. Keeps the memory if it is on a GPU and then uses that GPU,
 * otherwise frees it.
 */
static int cuda_open_shared(struct cuda *cuda, const struct device_setup *setup, size_t bytes)
{
    struct cudaPointerAttributes where;
    void *memory = NULL;

    if (!setup->group || cuda_services->alloc(setup->group, bytes, &memory) != DIST_OK)
        return 0;
    memset(&where, 0, sizeof(where));
    if (cudaPointerGetAttributes(&where, memory) != cudaSuccess)
        cudaGetLastError();
    if (where.type != cudaMemoryTypeDevice) {
        cuda_services->release(setup->group, memory);
        return 0;
    }
    if (setup->number >= 0 && setup->number != where.device) {
        cuda_services->release(setup->group, memory);
        return cuda_services->failure("--device cuda:%d: the backend's memory is on GPU %d",
                                      setup->number, where.device);
    }
    cuda->device.sums = (float *)memory;
    cuda->shared = true;
    cuda->gpu = where.device;
    return 0;
}

static int cuda_open_gpu(struct cuda *cuda, const struct device_setup *setup, size_t sums)
{
    const char *variable = getenv("DIST_DEVICE");
    int gpus = 0;
    const cudaError_t error = cudaGetDeviceCount(&gpus);

    if (error != cudaSuccess || gpus == 0)
        return cuda_services->failure(
            "--device cuda: no GPU is available: %s: check that nvidia-smi lists one and that "
            "CUDA_VISIBLE_DEVICES includes it, or use --device cpu",
            error != cudaSuccess ? cudaGetErrorString(error) : "the driver lists none");
    cuda->gpu = setup->number >= 0      ? setup->number
                : variable && *variable ? atoi(variable)
                                        : setup->local_rank % gpus;
    if (cuda->gpu < 0 || cuda->gpu >= gpus)
        return cuda_services->failure("--device cuda: no GPU %d: this rank has %d GPUs", cuda->gpu,
                                      gpus);
    /*
     * Set the device before the first query about memory, which would otherwise create a context on
     * GPU 0.
     */
    if (cuda_check(cuda, cudaSetDevice(cuda->gpu), "selecting it") < 0 ||
        cuda_open_shared(cuda, setup, sums * sizeof(float)) < 0)
        return -1;
    return cuda_check(cuda, cudaSetDevice(cuda->gpu), "selecting it");
}

/* ---- memory ---- */

/* Allocates zeroed memory, which cuda_close frees. NULL: out of memory. */
static void *cuda_alloc(struct cuda *cuda, size_t bytes)
{
    void *memory = NULL;

    bytes = bytes > 0 ? bytes : 1;
    if (cuda->owned_count == CUDA_OWNED || cudaMalloc(&memory, bytes) != cudaSuccess)
        return NULL;
    cuda->owned[cuda->owned_count++] = memory;
    return cudaMemset(memory, 0, bytes) == cudaSuccess ? memory : NULL;
}

static float *cuda_floats(struct cuda *cuda, size_t count)
{
    return (float *)cuda_alloc(cuda, count * sizeof(float));
}

/*
 * Copies the shapes of the host's model, and allocates GPU memory for its data and for all passes
 * and updates.
 */
static bool cuda_open_memory(struct cuda *cuda, int capacity)
{
    const int chunk = capacity < CUDA_CHUNK ? capacity : CUDA_CHUNK;
    struct model *model = &cuda->model;
    size_t widest = 1, windows = 1;
    bool complete = true;

    *model = *cuda->host;
    model->weights = cuda_floats(cuda, model->parameters);
    if (!cuda->shared)
        cuda->device.sums = cuda_floats(cuda, model->parameters + GRID_TAIL);
    model->gradients = cuda->rounds ? cuda_floats(cuda, model->parameters) : cuda->device.sums;
    for (int i = 0; i < model->count; i++) {
        const struct layer *layer = &model->layers[i];
        const size_t size = shape_size(layer->out),
                     wanted = size / layer->out.channels * layer->spatial * layer->inputs;

        model->activations[i] = cuda_floats(cuda, size * capacity);
        complete = complete && model->activations[i];
        widest = size > widest ? size : widest;
        windows = layer->kernel > 0 && layer->name && wanted > windows ? wanted : windows;
    }
    for (int i = 0; i < 2; i++) {
        model->deltas[i] = cuda_floats(cuda, widest * capacity);
        cuda->partial[i] = cuda_floats(cuda, widest * capacity / CUDA_ROWS + widest);
        complete = complete && model->deltas[i] && cuda->partial[i];
    }
    model->scratch = cuda_floats(cuda, windows * chunk);
    complete =
        complete && model->weights && cuda->device.sums && model->gradients && model->scratch;
    cuda->state[0] = cuda_floats(cuda, model->parameters);
    cuda->state[1] = cuda_floats(cuda, cuda->adadelta ? model->parameters : 1);
    cuda->steps = cuda_floats(cuda, GRID_TAIL);
    cuda->most = (unsigned *)cuda_alloc(cuda, GRID_TAIL * sizeof(unsigned));
    cuda->losses = cuda_floats(cuda, capacity);
    cuda->correct = (int *)cuda_alloc(cuda, capacity * sizeof(int));
    cuda->result = (struct cuda_result *)cuda_alloc(cuda, sizeof(struct cuda_result));
    cuda->batch = cuda_alloc(cuda, cuda->batch_bytes);
    for (int i = 0; i < CUDA_SLOTS; i++) {
        if (cudaHostAlloc(&cuda->pinned[i], cuda->batch_bytes, cudaHostAllocDefault) !=
                cudaSuccess ||
            cudaEventCreateWithFlags(&cuda->copied[i], cudaEventDisableTiming) != cudaSuccess)
            return false;
    }
    if (cudaHostAlloc((void **)&cuda->ring, DEVICE_AHEAD * sizeof(float), cudaHostAllocDefault) !=
            cudaSuccess ||
        cudaHostAlloc((void **)&cuda->result_host, sizeof(struct cuda_result),
                      cudaHostAllocDefault) != cudaSuccess)
        return false;
    return complete && cuda->state[0] && cuda->state[1] && cuda->steps && cuda->most &&
           cuda->losses && cuda->correct && cuda->result && cuda->batch;
}

/*
 * Initialises *cuda, which must be zeroed except for device. The caller calls cuda_close in any
 * case.
 */
static int cuda_open(struct cuda *cuda, const struct device_setup *setup)
{
    struct grid grid;

    cuda->host = setup->model;
    cuda->world = setup->world;
    cuda->rounds = setup->grid;
    cuda->adadelta = strcmp(setup->optimizer, "adadelta") == 0;
    cuda->momentum = setup->momentum;
    cuda->weight_decay = setup->weight_decay;
    cuda->batch_bytes =
        (size_t)setup->capacity * (cuda_pixels(cuda) * sizeof(float) + sizeof(uint32_t) + 1);
    if (!cuda->adadelta && strcmp(setup->optimizer, "sgd") != 0)
        return cuda_services->failure("unknown optimizer '%s': expected adadelta or sgd",
                                      setup->optimizer);
    for (int i = 0; i < cuda->host->count; i++) {
        const char *kind = cuda->host->layers[i].kind->name;

        for (const struct cuda_layer_kind &known : cuda_layer_kinds) {
            if (strcmp(known.name, kind) == 0)
                cuda->kinds[i] = &known;
        }
        if (!cuda->kinds[i])
            return cuda_services->failure("--device cuda: no kernels for a layer of kind %s: use "
                                          "another --arch than %s, or --device cpu",
                                          kind, cuda->host->arch);
    }
    if (cuda_open_gpu(cuda, setup, setup->model->parameters + GRID_TAIL) < 0 ||
        cuda_check(cuda, cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking),
                   "creating a stream") < 0)
        return -1;
    cuda->device.stream = cuda->stream;
    /* No tensor cores and no reduced precision: products in float32, as on the CPU. */
    if (cuda_check_blas(cuda, cublasCreate(&cuda->blas), "starting") < 0 ||
        cuda_check_blas(cuda, cublasSetStream(cuda->blas, cuda->stream), "setting its stream") <
            0 ||
        cuda_check_blas(cuda, cublasSetMathMode(cuda->blas, CUBLAS_PEDANTIC_MATH),
                        "selecting float32") < 0)
        return -1;
    if (!cuda_open_memory(cuda, setup->capacity))
        return cuda_services->failure("GPU %d: out of memory for a model of %d samples a pass: "
                                      "%s: lower --batch-size",
                                      cuda->gpu, setup->capacity,
                                      cudaGetErrorString(cudaGetLastError()));
    /* Set the pointers of each layer to GPU memory. */
    for (int i = 0; i < cuda->model.count; i++) {
        struct model *model = &cuda->model;
        struct layer *layer = &model->layers[i];

        layer->scratch = model->scratch;
        if (!layer->name)
            continue;
        layer->weight = model->weights + (layer->weight - cuda->host->weights);
        layer->bias = model->weights + (layer->bias - cuda->host->weights);
        layer->dweight = model->gradients + (layer->weight - model->weights);
        layer->dbias = model->gradients + (layer->bias - model->weights);
    }
    cuda_services->grid_start(cuda->host, &grid);
    if (cuda_check(cuda,
                   cudaMemcpy(cuda->steps, grid.steps, sizeof(grid.steps), cudaMemcpyHostToDevice),
                   "setting the grid") < 0)
        return -1;
    return cuda_check(cuda, cudaDeviceSynchronize(), "initialising it");
}

/* Waits until the queued work has ended, then frees everything. */
static void cuda_close(struct device *device)
{
    struct cuda *cuda = (struct cuda *)device;

    if (cuda->stream)
        cudaStreamSynchronize(cuda->stream);
    if (cuda->shared)
        cuda_services->release(NULL, cuda->device.sums);
    for (int i = 0; i < cuda->owned_count; i++)
        cudaFree(cuda->owned[i]);
    for (int i = 0; i < CUDA_SLOTS; i++) {
        cudaFreeHost(cuda->pinned[i]);
        if (cuda->copied[i])
            cudaEventDestroy(cuda->copied[i]);
    }
    cudaFreeHost(cuda->ring);
    cudaFreeHost(cuda->result_host);
    if (cuda->blas)
        cublasDestroy(cuda->blas);
    if (cuda->stream)
        cudaStreamDestroy(cuda->stream);
    free(cuda);
}

/* ---- weights and optimizer state ---- */

/* Copies between the GPU (`there`) and the host (`here`), and waits for the copy. */
static int cuda_copy(struct cuda *cuda, float *there, float *here, size_t count, bool save)
{
    cudaError_t error =
        cudaMemcpyAsync(save ? here : there, save ? there : here, count * sizeof(float),
                        save ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, cuda->stream);

    if (error == cudaSuccess)
        error = cudaStreamSynchronize(cuda->stream);
    return cuda_check(cuda, error, save ? "copying from it" : "copying to it");
}

static int cuda_put(struct device *device)
{
    struct cuda *cuda = (struct cuda *)device;

    return cuda_copy(cuda, cuda->model.weights, cuda->host->weights, cuda->model.parameters, false);
}

static int cuda_get(struct device *device)
{
    struct cuda *cuda = (struct cuda *)device;

    return cuda_copy(cuda, cuda->model.weights, cuda->host->weights, cuda->model.parameters, true);
}

/* Uses the CPU's order: the optimizer's state, then the grid's. */
static int cuda_state(struct device *device, bool save, float *state)
{
    struct cuda *cuda = (struct cuda *)device;
    const size_t parameters = cuda->model.parameters;

    for (int k = 0; k < (cuda->adadelta ? 2 : 1); k++, state += parameters) {
        if (cuda_copy(cuda, cuda->state[k], state, parameters, save) < 0)
            return -1;
    }
    return cuda_copy(cuda, cuda->steps, state, MODEL_MAX_TENSORS, save);
}

/* ---- batches ---- */

/* The layout is images | positions | labels of `count` samples, so that one copy transfers all. */
static struct cuda_batch cuda_batch_at(const struct cuda *cuda, void *memory, size_t count)
{
    struct cuda_batch batch;

    batch.images = (float *)memory;
    batch.positions = (uint32_t *)(batch.images + count * cuda_pixels(cuda));
    batch.labels = (uint8_t *)(batch.positions + count);
    return batch;
}

/*
 * Queues the copy of a batch. Waits only for the copy of the batch before the previous one, whose
 * pinned memory it reuses.
 */
static int cuda_upload(struct cuda *cuda, const struct batch *batch, struct cuda_batch *there)
{
    const size_t count = (size_t)batch->count;
    const size_t bytes = count * (cuda_pixels(cuda) * sizeof(float) + sizeof(uint32_t) + 1);
    const int slot = cuda->slot++ % CUDA_SLOTS;
    const struct cuda_batch here = cuda_batch_at(cuda, cuda->pinned[slot], count);
    cudaError_t error;

    if (cuda->copying[slot] &&
        cuda_check(cuda, cudaEventSynchronize(cuda->copied[slot]), "copying a batch to it") < 0)
        return -1;
    memcpy(here.images, batch->images, count * cuda_pixels(cuda) * sizeof(float));
    memcpy(here.positions, batch->positions, count * sizeof(uint32_t));
    memcpy(here.labels, batch->labels, count);
    cuda->copying[slot] = true;
    *there = cuda_batch_at(cuda, cuda->batch, count);
    error = cudaMemcpyAsync(cuda->batch, cuda->pinned[slot], bytes, cudaMemcpyHostToDevice,
                            cuda->stream);
    if (error == cudaSuccess)
        error = cudaEventRecord(cuda->copied[slot], cuda->stream);
    return cuda_check(cuda, error, "copying a batch to it");
}

/* Queues forward and backward of the samples of the pass. */
static void cuda_pass(struct cuda *cuda, const struct pass *pass, const float *images,
                      const uint8_t *labels, const struct model_listener *listener)
{
    struct model *model = &cuda->model;

    cuda_forward(cuda, pass, images);
    cuda_loss(cuda, pass->batch, labels, pass->weight, model_output_gradient(model));
    for (int i = model->count - 1; i >= 0; i--) {
        cuda->kinds[i]->backward(cuda, &model->layers[i], pass,
                                 i > 0 ? model->activations[i - 1] : images, model->activations[i],
                                 model->deltas[i % 2], i > 0 ? model->deltas[(i + 1) % 2] : NULL);
        model_listen(listener, &model->layers[i]);
    }
}

static int cuda_gradients(struct device *device, const struct pass *pass, const struct batch *batch,
                          int micro_batches, const struct model_listener *listener)
{
    struct cuda *cuda = (struct cuda *)device;
    struct cuda_batch there;
    struct pass part = *pass;

    if (cuda_upload(cuda, batch, &there) < 0)
        return -1;
    part.positions = there.positions;
    if (!cuda->rounds) {
        cuda_pass(cuda, &part, there.images, there.labels, listener);
        /* Store the loss (result->total * weight) after the sums. */
        CUDA_LAUNCH(cuda, cuda_tail, 1, cuda->result, pass->weight, cuda->most, pass->add,
                    device->sums + cuda->model.parameters);
        return cuda_check_all(cuda);
    }
    /* Process one micro-batch at a time; each is rounded before it is added. */
    part.add = false;
    part.batch = pass->batch / micro_batches;
    for (int m = 0; m < micro_batches; m++) {
        const struct model *model = &cuda->model;
        const size_t begin = (size_t)m * part.batch;
        const bool add = pass->add || m > 0;

        part.positions = there.positions + begin;
        cuda_pass(cuda, &part, there.images + begin * cuda_pixels(cuda), there.labels + begin,
                  NULL);
        /* Do the same as grid_add; the loss is result->total * weight. */
        cudaMemsetAsync(cuda->most, 0, GRID_TAIL * sizeof(*cuda->most), cuda->stream);
        for (int i = 0; i < model->tensor_count; i++) {
            const struct model_tensor *place = &model->tensors[i];

            CUDA_LAUNCH(cuda, cuda_round, place->count, cuda->steps + i, (float)cuda->world, add,
                        model->gradients + place->offset, device->sums + place->offset,
                        cuda->most + i);
        }
        CUDA_LAUNCH(cuda, cuda_tail, GRID_TAIL, cuda->result, pass->weight, cuda->most, add,
                    device->sums + model->parameters);
    }
    return cuda_check_all(cuda);
}

static int cuda_test(struct device *device, const struct pass *pass, const struct batch *batch,
                     struct loss *loss)
{
    struct cuda *cuda = (struct cuda *)device;
    struct cuda_batch there;
    struct pass part = *pass;

    if (cuda_upload(cuda, batch, &there) < 0)
        return -1;
    part.positions = there.positions;
    cuda_forward(cuda, &part, there.images);
    cuda_loss(cuda, batch->count, there.labels, 0.0F, NULL);
    cudaMemcpyAsync(cuda->result_host, cuda->result, sizeof(*cuda->result), cudaMemcpyDeviceToHost,
                    cuda->stream);
    if (cuda_check(cuda, cudaStreamSynchronize(cuda->stream), "testing") < 0 ||
        cuda_check_all(cuda) < 0)
        return -1;
    loss->total = cuda->result_host->total;
    loss->correct = cuda->result_host->correct;
    return 0;
}

/* ---- updates ---- */

static int cuda_update(struct device *device, float lr)
{
    struct cuda *cuda = (struct cuda *)device;
    struct model *model = &cuda->model;

    if (cuda->rounds)
        CUDA_LAUNCH(cuda, cuda_advance, GRID_TAIL - 1, device->sums + model->parameters + 1,
                    cuda->steps);
    if (cuda->adadelta)
        CUDA_LAUNCH(cuda, cuda_adadelta, model->parameters, OPTIMIZER_RHO, OPTIMIZER_EPSILON,
                    cuda->weight_decay, lr, device->sums, cuda->state[0], cuda->state[1],
                    model->weights);
    else
        CUDA_LAUNCH(cuda, cuda_sgd, model->parameters, cuda->momentum, cuda->weight_decay, lr,
                    device->sums, cuda->state[0], model->weights);
    cudaMemcpyAsync(&cuda->ring[cuda->updates++ % DEVICE_AHEAD], device->sums + model->parameters,
                    sizeof(float), cudaMemcpyDeviceToHost, cuda->stream);
    return cuda_check_all(cuda);
}

static int cuda_losses(struct device *device, int count, double *losses)
{
    struct cuda *cuda = (struct cuda *)device;

    if (cuda_check(cuda, cudaStreamSynchronize(cuda->stream), "training") < 0)
        return -1;
    for (int i = 0; i < count; i++)
        losses[i] = (double)cuda->ring[(cuda->updates - count + i) % DEVICE_AHEAD];
    return 0;
}

/* ---- the module ---- */

static int cuda_device_open(const struct device_setup *setup, struct device **device_p);

static const struct device_kind cuda_kind = {
    cuda_device_open, cuda_close,  cuda_put, cuda_get,    cuda_state,
    cuda_gradients,   cuda_update, NULL,     cuda_losses, cuda_test,
};

static int cuda_device_open(const struct device_setup *setup, struct device **device_p)
{
    struct cuda *cuda = (struct cuda *)calloc(1, sizeof(*cuda));

    if (!cuda)
        return cuda_services->failure("out of memory");
    cuda->device.kind = &cuda_kind;
    cuda->device.streamed = true;
    if (cuda_open(cuda, setup) < 0) {
        cuda_close(&cuda->device);
        return -1;
    }
    cuda->device.state_count =
        cuda->model.parameters * (cuda->adadelta ? 2 : 1) + MODEL_MAX_TENSORS;
    *device_p = &cuda->device;
    return 0;
}

extern "C" const struct device_kind *train_mnist_cuda(const char *version,
                                                      const struct device_services *services)
{
    if (strcmp(version, DIST_VERSION_STRING) != 0)
        return NULL;
    cuda_services = services;
    return &cuda_kind;
}
