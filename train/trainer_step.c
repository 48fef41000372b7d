/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's training: a step. */
#include "loss.h"
#include "rng.h"
#include "trainer.h"

/* Adds sample i of this rank's part of the step. */
static void trainer_fill_one(struct trainer *trainer, int64_t step, int64_t i)
{
    const struct comm *comm = trainer->comm;
    const uint64_t seed = (uint64_t)trainer->options->seed;
    const uint32_t position = (uint32_t)(i * comm->world + comm->rank);
    const uint64_t key = rng_key(seed, RNG_AUGMENT, (uint64_t)trainer->step, position) | 1;

    batch_add(&trainer->batch, &trainer->train,
              sampler_at(&trainer->sampler, (size_t)(step * trainer->local_batch + i)), position,
              trainer->options->augment ? key : 0);
}

/* The samples of this rank for a step of the epoch. Returns how many micro-batches they are. */
static int trainer_fill(struct trainer *trainer, int64_t step)
{
    const int64_t left = (int64_t)sampler_size(&trainer->sampler) - step * trainer->local_batch;
    const int64_t count = left < trainer->local_batch ? left : trainer->local_batch;
    const int micro_batches = count % trainer->micro_batches == 0 ? trainer->micro_batches : 1;

    trainer->batch.count = 0;
    for (int m = 0; m < micro_batches; m++) {
        for (int64_t i = m; i < count; i += micro_batches)
            trainer_fill_one(trainer, step, i);
    }
    return micro_batches;
}

struct pass trainer_pass(const struct trainer *trainer, bool training, int begin, int count)
{
    return (struct pass){
        .batch = count,
        .training = training,
        .seed = (uint64_t)trainer->options->seed,
        .step = (uint64_t)trainer->step,
        .positions = trainer->batch.positions + begin,
    };
}

/* Forward and backward of the samples from begin on; adds their gradients to the sums. */
static void trainer_micro_batch(struct trainer *trainer, int begin, int count)
{
    const struct pass pass = trainer_pass(trainer, true, begin, count);
    const float *images = trainer->batch.images + (size_t)begin * MODEL_PIXELS;
    const float weight = 1.0F / (float)trainer->batch.count;
    struct model *model = trainer->model;
    const float *outputs = model_forward(model, &pass, images);
    const struct loss loss = loss_nll(count, MODEL_CLASSES, outputs, trainer->batch.labels + begin,
                                      weight, model_output_gradient(model));

    model_backward(model, &pass, images);
    grid_add(&trainer->grid, model, trainer->comm->world, (float)(loss.total * (double)weight),
             begin > 0, trainer->sums);
}

void trainer_gradients(struct trainer *trainer, int64_t step)
{
    const int micro_batches = trainer_fill(trainer, step);
    const int size = trainer->batch.count / micro_batches;

    for (int m = 0; m < micro_batches; m++)
        trainer_micro_batch(trainer, m * size, size);
}

double trainer_update(struct trainer *trainer, double lr)
{
    struct model *model = trainer->model;

    grid_advance(&trainer->grid, model, trainer->sums);
    optimizer_step(trainer->optimizer, (float)lr, model->weights, trainer->sums);
    trainer->step++;
    trainer->steps_here++;
    return (double)trainer->sums[model->parameters];
}
