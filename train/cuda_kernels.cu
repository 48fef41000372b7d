/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Layers, loss, grid and optimizer as kernels; layouts and formulas are those of layers.c, model.c
 * and device.c.
 */
#include <string.h>

#include "cuda.h"
#include "rng.h"

/* As gemm(). cuBLAS has columns next to each other: it is given the transposed product. */
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

/* Thread (row, column) of to adds CUDA_ROWS rows of from, downwards, to what is there if `add`. */
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

/* windows (samples * pixels) x (kernel * run): see layers.c. */
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

/* din[i] is the sum over the windows that have pixel i, in their order. */
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

/* Where the window of out's element i begins in `in`. */
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

/* To the first of the four that equals the maximum. */
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

/* The draws are those of layers.c: by sample and step. */
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
                                  const struct pass *pass, const float *in, const float *out,
                                  float *dout, float *din)
{
    (void)in;
    (void)out;
    if (din)
        cuda_dropout_apply(cuda, layer, pass, dout, din);
}

/* ---- all of them ---- */

static const struct cuda_layer_kind cuda_layer_kinds[] = {
    {"conv", cuda_conv_forward, cuda_conv_backward},
    {"dense", cuda_dense_forward, cuda_dense_backward},
    {"pool", cuda_pool_forward, cuda_pool_backward},
    {"dropout", cuda_dropout_forward, cuda_dropout_backward},
};

const struct cuda_layer_kind *cuda_find_layer(const char *name)
{
    for (const struct cuda_layer_kind &kind : cuda_layer_kinds) {
        if (strcmp(kind.name, name) == 0)
            return &kind;
    }
    return NULL;
}

void cuda_forward(struct cuda *cuda, const struct pass *pass, const float *images)
{
    struct model *model = &cuda->model;

    for (int i = 0; i < model->count; i++)
        cuda->kinds[i]->forward(cuda, &model->layers[i], pass,
                                i > 0 ? model->activations[i - 1] : images, model->activations[i]);
}

void cuda_backward(struct cuda *cuda, const struct pass *pass, const float *images,
                   const struct model_listener *listener)
{
    struct model *model = &cuda->model;

    for (int i = model->count - 1; i >= 0; i--) {
        cuda->kinds[i]->backward(cuda, &model->layers[i], pass,
                                 i > 0 ? model->activations[i - 1] : images, model->activations[i],
                                 model->deltas[i % 2], i > 0 ? model->deltas[(i + 1) % 2] : NULL);
        model_listen(listener, &model->layers[i]);
    }
}

/* ---- loss ---- */

/* A thread a sample. */
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

/* One thread, as the CPU does: sample after sample, in double. */
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

void cuda_loss(struct cuda *cuda, int count, const uint8_t *labels, float weight, float *gradient)
{
    const float *outputs = cuda->model.activations[cuda->model.count - 1];

    CUDA_LAUNCH(cuda, cuda_nll, (size_t)count, outputs, labels, weight, gradient, cuda->losses,
                cuda->correct);
    CUDA_LAUNCH(cuda, cuda_total, 1, count, cuda->losses, cuda->correct, cuda->result);
}

/* ---- grid ---- */

/* Most grows only, so a glance that is out of date costs an atomic, never a maximum. */
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

/* What follows the sums: thread 0 the loss, the others the tensors' largest. */
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

void cuda_add_loss(struct cuda *cuda, float weight, bool add)
{
    CUDA_LAUNCH(cuda, cuda_tail, 1, cuda->result, weight, cuda->most, add,
                cuda->device.sums + cuda->model.parameters);
}

static __global__ void cuda_advance(size_t count, const float *largest, float *steps)
{
    const size_t i = cuda_index();

    if (i < count)
        steps[i] = ldexpf(grid_power(largest[i]), -GRID_BITS);
}

int cuda_grid_start(struct cuda *cuda)
{
    struct grid grid;

    cuda->services->grid_start(cuda->host, &grid);
    return cuda_check(
        cuda, cudaMemcpy(cuda->steps, grid.steps, sizeof(grid.steps), cudaMemcpyHostToDevice),
        "setting the grid");
}

void cuda_grid_add(struct cuda *cuda, float weight, bool add)
{
    cudaMemsetAsync(cuda->most, 0, GRID_TAIL * sizeof(*cuda->most), cuda->stream);
    for (int i = 0; i < cuda->model.tensor_count; i++) {
        const struct model_tensor *place = &cuda->model.tensors[i];

        CUDA_LAUNCH(cuda, cuda_round, place->count, cuda->steps + i, (float)cuda->world, add,
                    cuda->model.gradients + place->offset, cuda->device.sums + place->offset,
                    cuda->most + i);
    }
    CUDA_LAUNCH(cuda, cuda_tail, GRID_TAIL, cuda->result, weight, cuda->most, add,
                cuda->device.sums + cuda->model.parameters);
}

void cuda_grid_advance(struct cuda *cuda)
{
    CUDA_LAUNCH(cuda, cuda_advance, GRID_TAIL - 1, cuda->device.sums + cuda->model.parameters + 1,
                cuda->steps);
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

void cuda_optimizer_step(struct cuda *cuda, float lr)
{
    struct model *model = &cuda->model;

    if (cuda->adadelta)
        CUDA_LAUNCH(cuda, cuda_adadelta, model->parameters, OPTIMIZER_RHO, OPTIMIZER_EPSILON,
                    cuda->weight_decay, lr, cuda->device.sums, cuda->first, cuda->second,
                    model->weights);
    else
        CUDA_LAUNCH(cuda, cuda_sgd, model->parameters, cuda->momentum, cuda->weight_decay, lr,
                    cuda->device.sums, cuda->first, model->weights);
}
