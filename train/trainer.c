/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's training: the loops. */
#include "trainer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "failure.h"
#include "hash.h"
#include "train/files/checkpoint.h"

/* Whether --max-steps or --dry-run end the training here. */
static bool trainer_is_done(const struct trainer *trainer)
{
    const int64_t most = trainer->options->max_steps;

    return (most >= 0 && trainer->steps_here >= most) ||
           (trainer->options->dry_run && trainer->steps_here >= 1);
}

static int64_t trainer_steps(const struct trainer *trainer)
{
    const int64_t size = (int64_t)dist_sampler_count(trainer->sampler);

    return (size + trainer->local_batch - 1) / trainer->local_batch;
}

/* Seconds and communication share since the two marks, as the mean of the ranks. */
static int trainer_measure(struct trainer *trainer, double began, double communicated,
                           struct report_result *result)
{
    double sums[2] = {comm_now() - began, trainer->comm->seconds - communicated};

    result->seconds = sums[0];
    if (comm_sum(trainer->comm, sums, 2) < 0)
        return -1;
    result->share = sums[0] > 0 ? sums[1] / sums[0] : 0.0;
    return 0;
}

/* Asks for the losses of the steps since the last time: here the host waits for the device. */
static int trainer_take_losses(struct trainer *trainer)
{
    const int64_t first = trainer->step - trainer->pending + 1;
    struct device *device = trainer->device;
    double losses[DEVICE_AHEAD];

    if (device->kind->losses(device, trainer->pending, losses) < 0)
        return -1;
    for (int i = 0; i < trainer->pending; i++) {
        trainer->loss = losses[i];
        trainer->losses += losses[i];
        if (trainer->loss_log)
            fprintf(trainer->loss_log, "%" PRId64 " %.9g\n", first + i, losses[i]);
    }
    trainer->pending = 0;
    return 0;
}

/* Step `step` of the epoch: all of it. */
static int trainer_step(struct trainer *trainer, int64_t step, double lr)
{
    const int64_t world = trainer->comm->world, interval = trainer->options->checkpoint_interval;
    const int64_t all = (int64_t)trainer->train.count;
    const size_t count = trainer->model->parameters + GRID_TAIL;
    const bool due = report_is_due(&trainer->report, step);

    if (trainer_gradients(trainer, step) < 0 ||
        comm_average(trainer->comm, trainer->device->sums, count) < 0 ||
        trainer_update(trainer, lr) < 0)
        return -1;
    trainer->pending++;
    /* The last batch of an epoch is padded with samples that were seen before. */
    trainer->samples += (int64_t)trainer->batch.count * world;
    trainer->samples = trainer->samples < all ? trainer->samples : all;
    if ((due || trainer->pending == trainer->device->ahead) && trainer_take_losses(trainer) < 0)
        return -1;
    if (due)
        report_step(&trainer->report, step, trainer->loss);
    return interval > 0 && trainer->step % interval == 0 ? trainer_keep(trainer) : 0;
}

/* The next one begins, unless --max-steps ended this one: then the file says where. */
static int trainer_end_epoch(struct trainer *trainer)
{
    const bool whole = trainer->samples == (int64_t)trainer->train.count;

    if (!whole && trainer_keep(trainer) < 0)
        return -1;
    trainer->epoch++;
    trainer->samples = 0;
    return whole ? trainer_keep(trainer) : 0;
}

/* Where the one before ended, or a checkpoint. */
static int trainer_begin_epoch(struct trainer *trainer)
{
    const struct dist_sampler_state state = {.seed = (uint64_t)trainer->options->seed,
                                             .epoch = (uint64_t)trainer->epoch,
                                             .seen = (uint64_t)trainer->samples};

    return dist_sampler_restore(trainer->sampler, &state) < 0 ? failure_dist("the epoch") : 0;
}

int trainer_epoch(struct trainer *trainer, double lr, struct report_result *result)
{
    const int64_t global = trainer->local_batch * trainer->comm->world;
    const double began = comm_now(), communicated = trainer->comm->seconds;
    int64_t step = 0, steps;

    *result = (struct report_result){0};
    if (trainer_begin_epoch(trainer) < 0)
        return -1;
    steps = trainer_steps(trainer);
    trainer->losses = 0.0;
    report_epoch(&trainer->report, trainer->epoch + 1, steps, global, (int64_t)trainer->train.count,
                 trainer->samples);
    for (; step < steps && !trainer_is_done(trainer); step++) {
        if (trainer_step(trainer, step, lr) < 0)
            return -1;
        result->count += (int64_t)trainer->batch.count * trainer->comm->world;
    }
    if (trainer_take_losses(trainer) < 0)
        return -1;
    result->loss = step > 0 ? trainer->losses / (double)step : 0.0;
    if (trainer_measure(trainer, began, communicated, result) < 0)
        return -1;
    report_epoch_end(&trainer->report, result, lr, step);
    return trainer_end_epoch(trainer);
}

/* Tests what is in the batch and adds it to sums: loss, correct, samples. */
static int trainer_test_batch(struct trainer *trainer, double sums[3])
{
    const struct pass pass = trainer_pass(trainer, false);
    struct device *device = trainer->device;
    struct loss loss;

    if (device->kind->test(device, &pass, &trainer->batch, &loss) < 0)
        return -1;
    sums[0] += loss.total;
    sums[1] += (double)loss.correct;
    sums[2] += pass.batch;
    trainer->batch.count = 0;
    return 0;
}

int trainer_test(struct trainer *trainer, struct report_result *result)
{
    const size_t world = (size_t)trainer->comm->world;
    double sums[3] = {0.0, 0.0, 0.0};

    trainer->batch.count = 0;
    for (size_t i = (size_t)trainer->comm->rank; i < trainer->test.count; i += world) {
        batch_add(&trainer->batch, &trainer->test, i, 0, 0);
        if (trainer->batch.count == trainer->batch.capacity &&
            trainer_test_batch(trainer, sums) < 0)
            return -1;
    }
    if (trainer->batch.count > 0 && trainer_test_batch(trainer, sums) < 0)
        return -1;
    if (comm_sum(trainer->comm, sums, 3) < 0)
        return -1;
    result->loss = sums[0] / sums[2];
    result->correct = (int64_t)sums[1];
    result->count = (int64_t)sums[2];
    report_test(&trainer->report, result);
    return 0;
}

/* Brings the weights to the host, for the file that follows as well. */
static int trainer_check_hash(struct trainer *trainer)
{
    uint64_t hash;

    if (trainer->device->kind->get(trainer->device) < 0)
        return -1;
    hash = hash_floats(trainer->model->weights, trainer->model->parameters);
    if (comm_compare(trainer->comm, hash, "parameter hash") < 0)
        return -1;
    report_hash(&trainer->report, hash, trainer->comm->world);
    return 0;
}

static int trainer_save(struct trainer *trainer)
{
    char path[64];
    int result = 0;

    if (!trainer->options->save_model)
        return 0;
    snprintf(path, sizeof(path), "mnist_%s.safetensors", trainer->model->arch);
    if (trainer->comm->rank == 0)
        result = checkpoint_save(path, trainer->model, trainer->epoch);
    return comm_agree(trainer->comm, result, "save the model");
}

int trainer_run(struct trainer *trainer)
{
    const struct options *options = trainer->options;
    const double began = comm_now(), communicated = trainer->comm->seconds;
    struct report_result result = {.loss = 0};
    bool tested = false;

    if (!trainer->resumed)
        trainer->step = trainer->epoch * trainer_steps(trainer);
    while (!options->evaluate && trainer->epoch < options->epochs && !trainer_is_done(trainer)) {
        const double lr = options->lr * pow(options->gamma, (double)trainer->epoch);

        if (trainer_epoch(trainer, lr, &result) < 0)
            return -1;
        if (trainer_test(trainer, &result) < 0 || trainer_check_hash(trainer) < 0)
            return -1;
        tested = true;
    }
    if (!tested && (trainer_test(trainer, &result) < 0 || trainer_check_hash(trainer) < 0))
        return -1;
    if (trainer_save(trainer) < 0 || trainer_measure(trainer, began, communicated, &result) < 0)
        return -1;
    report_end(&trainer->report, &result, dist_get_backend(trainer->comm->group),
               trainer->comm->world);
    return 0;
}
