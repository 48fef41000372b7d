/* SPDX-License-Identifier: BSD-3-Clause */
/* Loss, grid and optimizer as kernels; formulas are those of loss.c, grid.c and optimizer.c. */
#include "cuda.h"

#include "train/optimizer.h"

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

static void cuda_grid_add_tensor(struct cuda *cuda, int tensor, bool add)
{
    const struct model_tensor *place = &cuda->model.tensors[tensor];

    CUDA_LAUNCH(cuda, cuda_round, place->count, cuda->steps + tensor, (float)cuda->world, add,
                cuda->model.gradients + place->offset, cuda->device.sums + place->offset,
                cuda->most + tensor);
}

void cuda_grid_add(struct cuda *cuda, float weight, bool add)
{
    cudaMemsetAsync(cuda->most, 0, GRID_TAIL * sizeof(*cuda->most), cuda->stream);
    for (int i = 0; i < cuda->model.tensor_count; i++)
        cuda_grid_add_tensor(cuda, i, add);
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
