/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's training: a step. */
#include "train/model/rng.h"
#include "trainer.h"

/* Adds sample i of this rank's part of the step. */
static void trainer_fill_one(struct trainer *trainer, int64_t step, int64_t i)
{
    const struct comm *comm = trainer->comm;
    const uint64_t seed = (uint64_t)trainer->options->seed;
    const uint32_t position = (uint32_t)(i * comm->world + comm->rank);
    const uint64_t key = rng_key(seed, RNG_AUGMENT, (uint64_t)trainer->step, position) | 1;

    batch_add(
        &trainer->batch, &trainer->train,
        (size_t)dist_sampler_at(trainer->sampler, (uint64_t)(step * trainer->local_batch + i)),
        position, trainer->options->augment ? key : 0);
}

/* The samples of this rank for a step of the epoch. Returns how many micro-batches they are. */
static int trainer_fill(struct trainer *trainer, int64_t step)
{
    const int64_t left =
        (int64_t)dist_sampler_count(trainer->sampler) - step * trainer->local_batch;
    const int64_t count = left < trainer->local_batch ? left : trainer->local_batch;
    const int micro_batches = count % trainer->micro_batches == 0 ? trainer->micro_batches : 1;

    trainer->batch.count = 0;
    for (int m = 0; m < micro_batches; m++) {
        for (int64_t i = m; i < count; i += micro_batches)
            trainer_fill_one(trainer, step, i);
    }
    return micro_batches;
}

struct pass trainer_pass(const struct trainer *trainer, bool training)
{
    return (struct pass){
        .batch = trainer->batch.count,
        .training = training,
        .seed = (uint64_t)trainer->options->seed,
        .step = (uint64_t)trainer->step,
        .positions = trainer->batch.positions,
    };
}

int trainer_gradients(struct trainer *trainer, int64_t step)
{
    const int micro_batches = trainer_fill(trainer, step);
    const struct pass pass = trainer_pass(trainer, true);
    struct device *device = trainer->device;

    return device->kind->gradients(device, &pass, &trainer->batch, micro_batches);
}

int trainer_update(struct trainer *trainer, double lr)
{
    trainer->step++;
    trainer->steps_here++;
    return trainer->device->kind->update(trainer->device, (float)lr);
}
