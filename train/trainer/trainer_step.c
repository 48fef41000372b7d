/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's training: a step. */
#include "train/rng.h"
#include "trainer.h"

/* Sample i of this rank's part of a step, which begins with sample `begin` of the epoch. */
static struct loader_item trainer_item(const struct trainer *trainer, int64_t step, int64_t begin,
                                       int64_t i)
{
    const struct comm *comm = trainer->comm;
    const uint64_t seed = (uint64_t)trainer->options->seed;
    const uint32_t position = (uint32_t)(i * comm->world + comm->rank);
    const uint64_t key = rng_key(seed, RNG_AUGMENT, (uint64_t)step, position) | 1;

    return (struct loader_item){
        .index = (size_t)dist_sampler_at(trainer->sampler, (uint64_t)(begin + i)),
        .position = position,
        .augment_key = trainer->options->augment ? key : 0,
    };
}

/* Micro-batches of a batch of so many samples. */
static int trainer_parts(const struct trainer *trainer, int64_t count)
{
    return count % trainer->micro_batches == 0 ? trainer->micro_batches : 1;
}

/* This rank's samples of batch `number` of the epoch. */
static int trainer_plan(void *arg, int64_t number, struct loader_item *items)
{
    const struct trainer *trainer = arg;
    const int64_t accumulate = trainer->options->accumulate, most = trainer->local_batch;
    const int64_t before = number % accumulate * most; /* samples of the step */
    const int64_t left = (int64_t)dist_sampler_count(trainer->sampler) - number * most;
    const int64_t count = left < most ? left : most;
    const int parts = trainer_parts(trainer, count);
    int filled = 0;

    for (int m = 0; m < parts; m++) {
        for (int64_t i = m; i < count; i += parts)
            items[filled++] = trainer_item(trainer, trainer->begun + number / accumulate,
                                           number * most - before, before + i);
    }
    return filled;
}

/* Batches of this rank in the epoch; the loader begins with the first. */
static void trainer_begin_loading(struct trainer *trainer)
{
    const int64_t all = (int64_t)dist_sampler_count(trainer->sampler);

    trainer->begun = trainer->step;
    loader_begin(trainer->loader, (all + trainer->local_batch - 1) / trainer->local_batch,
                 trainer_plan, trainer);
}

struct pass trainer_pass(const struct trainer *trainer, const struct batch *batch, bool training)
{
    return (struct pass){
        .batch = batch->count,
        .training = training,
        .weight = training ? 1.0F / (float)trainer->taken : 0.0F,
        .seed = (uint64_t)trainer->options->seed,
        .step = (uint64_t)trainer->step,
        .positions = batch->positions,
    };
}

/* A batch of the step: gradients become those of its samples, or grow by them (add). */
static int trainer_batch(struct trainer *trainer, bool add, const struct model_listener *listener)
{
    const double started = comm_now();
    const struct batch *batch = loader_next(trainer->loader);
    struct pass pass = trainer_pass(trainer, batch, true);
    struct device *device = trainer->device;
    int result;

    pass.add = add;
    trainer_spent(trainer, RECORD_DATA, started);
    trainer_passes_begin(trainer);
    result = device->kind->gradients(device, &pass, batch, trainer_parts(trainer, batch->count),
                                     listener);
    trainer_passes_end(trainer);
    return result;
}

/* With --accumulate several batches: gradients are complete with the last one. */
int trainer_gradients(struct trainer *trainer, int64_t step)
{
    const int64_t begin = step * trainer_step_samples(trainer);
    const int64_t all = (int64_t)dist_sampler_count(trainer->sampler);
    const int64_t left = all - begin, most = trainer_step_samples(trainer);
    const int64_t end = begin + (left < most ? left : most);

    if (step == 0)
        trainer_begin_loading(trainer);
    trainer->taken = end - begin;
    for (int64_t first = begin; first < end; first += trainer->local_batch) {
        const bool last = end - first <= trainer->local_batch;
        const struct model_listener listener = trainer_ddp_listener(trainer, last);

        if (trainer_batch(trainer, first > begin, &listener) < 0)
            return -1;
    }
    return 0;
}

int trainer_update(struct trainer *trainer)
{
    const double began = comm_now();
    const int result = trainer->device->kind->update(trainer->device, (float)trainer->lr);

    trainer_spent(trainer, RECORD_UPDATE, began);
    trainer->step++;
    trainer->steps_here++;
    return result;
}
