/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's training: the loops. */
#include "trainer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "train/checkpoint.h"
#include "train/failure.h"
#include "train/hash.h"

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

    return (size + trainer_step_samples(trainer) - 1) / trainer_step_samples(trainer);
}

/* Seconds in which this rank did nothing but communicate. */
static double trainer_communicated(const struct trainer *trainer)
{
    return trainer->comm->seconds + trainer->times.exposed;
}

/*
 * Seconds since the two marks, and the share of them that is communication: the part in which a
 * rank does nothing but communicate, or wait for other ranks. The mean of the ranks.
 */
static int trainer_measure(struct trainer *trainer, double began, double communicated,
                           struct report_result *result)
{
    double sums[2] = {comm_now() - began, trainer_communicated(trainer) - communicated};

    result->seconds = sums[0];
    if (comm_sum(trainer->comm, sums, 2) < 0)
        return -1;
    result->share = sums[0] > 0 ? sums[1] / sums[0] : 0.0;
    return 0;
}

/*
 * Asks for the losses of the steps since the last time, which the ranks have apart from each other
 * till then: here the host waits for the device, and for the other ranks.
 */
static int trainer_take_losses(struct trainer *trainer)
{
    const int64_t first = trainer->step - trainer->pending + 1;
    struct device *device = trainer->device;
    double losses[DEVICE_AHEAD];

    if (trainer->pending == 0)
        return 0;
    if (device->kind->losses(device, trainer->pending, losses) < 0)
        return -1;
    if (!trainer->options->reproducible &&
        comm_mean(trainer->comm, losses, (size_t)trainer->pending) < 0)
        return -1;
    for (int i = 0; i < trainer->pending; i++) {
        if (!isfinite(losses[i]))
            return failure("step %" PRId64 ": the loss is %f", first + i, losses[i]);
        trainer->loss = losses[i];
        trainer->losses += losses[i];
        if (trainer->loss_log)
            fprintf(trainer->loss_log, "%" PRId64 " %.9g\n", first + i, losses[i]);
    }
    records_losses(trainer->records.to, losses, trainer->pending);
    trainer->pending = 0;
    return 0;
}

/* Step `step` of the epoch: all of it. */
static int trainer_step(struct trainer *trainer, int64_t step)
{
    const int64_t world = trainer->comm->world, interval = trainer->options->checkpoint_interval;
    const int64_t all = (int64_t)trainer->train.count;
    const bool due = report_is_due(&trainer->report, step) ||
                     records_is_due(trainer->records.to, trainer->step + 1);

    trainer->lr = trainer_rate(trainer);
    if (trainer_gradients(trainer, step) < 0 || trainer_ddp_finish(trainer) < 0 ||
        trainer_update(trainer) < 0 || trainer_records_step(trainer) < 0)
        return -1;
    trainer->pending++;
    /* The last batch of an epoch is padded with samples that were seen before. */
    trainer->samples += trainer->taken * world;
    trainer->samples = trainer->samples < all ? trainer->samples : all;
    if ((due || trainer->pending == DEVICE_AHEAD) && trainer_take_losses(trainer) < 0)
        return -1;
    report_step(&trainer->report, step, trainer->loss);
    return interval > 0 && trainer->step % interval == 0 ? trainer_keep(trainer) : 0;
}

/* The next one begins, unless --max-steps ended this one. */
static void trainer_end_epoch(struct trainer *trainer)
{
    if (trainer->samples < (int64_t)trainer->train.count)
        return;
    trainer->epoch++;
    trainer->samples = 0;
}

/* Where the one before ended, or a checkpoint. */
static int trainer_begin_epoch(struct trainer *trainer)
{
    const struct dist_sampler_state state = {.seed = (uint64_t)trainer->options->seed,
                                             .epoch = (uint64_t)trainer->epoch,
                                             .seen = (uint64_t)trainer->samples};

    return dist_sampler_restore(trainer->sampler, &state) < 0 ? failure_dist("the epoch") : 0;
}

int trainer_epoch(struct trainer *trainer, struct report_result *result)
{
    const int64_t global = trainer_step_samples(trainer) * trainer->comm->world;
    const double began = comm_now(), communicated = trainer_communicated(trainer);
    int64_t step = 0, steps;

    *result = (struct report_result){0};
    if (trainer_begin_epoch(trainer) < 0)
        return -1;
    steps = trainer_steps(trainer);
    trainer->losses = 0.0;
    trainer_records_epoch(trainer);
    report_epoch(&trainer->report, trainer->epoch + 1, steps, global, (int64_t)trainer->train.count,
                 trainer->samples);
    for (; step < steps && !trainer_is_done(trainer); step++) {
        if (trainer_step(trainer, step) < 0)
            return -1;
        result->count += trainer->taken * trainer->comm->world;
    }
    if (trainer_take_losses(trainer) < 0)
        return -1;
    result->loss = step > 0 ? trainer->losses / (double)step : 0.0;
    if (trainer_measure(trainer, began, communicated, result) < 0)
        return -1;
    report_epoch_end(&trainer->report, result, trainer->lr, step);
    trainer_end_epoch(trainer);
    return 0;
}

/* Tests what is in the batch and adds it to sums: loss, correct, samples. */
static int trainer_test_batch(struct trainer *trainer, double sums[3])
{
    const struct pass pass = trainer_pass(trainer, &trainer->batch, false);
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

/* This rank's samples of the test. */
static int trainer_test_own(struct trainer *trainer, double sums[3])
{
    const size_t world = (size_t)trainer->comm->world;

    trainer->batch.count = 0;
    for (size_t i = (size_t)trainer->comm->rank; i < trainer->test.count; i += world) {
        batch_add(&trainer->batch, &trainer->test, i, 0, 0);
        if (trainer->batch.count == trainer->batch.capacity &&
            trainer_test_batch(trainer, sums) < 0)
            return -1;
    }
    return trainer->batch.count > 0 ? trainer_test_batch(trainer, sums) : 0;
}

/* A rank that fails says why; the others learn of it by the sum. */
int trainer_test(struct trainer *trainer, struct report_result *result)
{
    const double began = comm_now();
    double sums[3] = {0.0, 0.0, 0.0};
    int tested;

    if (trainer_ddp_sync(trainer) < 0)
        return -1;
    tested = trainer_test_own(trainer, sums);
    sums[0] = tested < 0 ? (double)NAN : sums[0];
    if (comm_sum(trainer->comm, sums, 3) < 0 || tested < 0)
        return -1;
    result->loss = sums[0] / sums[2];
    if (!isfinite(result->loss))
        return failure("the test after step %" PRId64 ": the loss is %f", trainer->step,
                       result->loss);
    result->correct = (int64_t)sums[1];
    result->count = (int64_t)sums[2];
    trainer_spent(trainer, RECORD_TEST, began);
    report_test(&trainer->report, result);
    if (trainer->options->report) {
        struct report_result whole;

        if (trainer_measure(trainer, trainer->began, trainer->communicated, &whole) < 0)
            return -1;
        records_share(trainer->records.to, whole.share);
    }
    return trainer_records_test(trainer, result);
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

/* Writes the host's copy of the weights. */
static int trainer_save(struct trainer *trainer, const char *ending)
{
    char path[64];
    int result = 0;

    snprintf(path, sizeof(path), "%s_%s%s.safetensors", trainer->options->task->model,
             trainer->model->arch, ending);
    if (trainer->comm->rank == 0)
        result = checkpoint_save(path, trainer->model, trainer->epoch);
    return comm_agree(trainer->comm, result, "save the model");
}

/* Whether --patience has run out. */
static bool trainer_is_enough(const struct trainer *trainer)
{
    const int64_t patience = trainer->options->patience;

    return patience > 0 && trainer->idle >= patience;
}

/*
 * An epoch and its test. The file that is kept knows of the test, unless --max-steps ended the
 * epoch: whoever goes on from there has not made it.
 */
static int trainer_learn(struct trainer *trainer, struct report_result *result)
{
    bool better;

    if (trainer_epoch(trainer, result) < 0 || trainer_test(trainer, result) < 0 ||
        trainer_check_hash(trainer) < 0)
        return -1;
    better = trainer->samples == 0 && trainer_improves(trainer, result->loss);
    if (trainer_keep(trainer) < 0)
        return -1;
    return better && trainer->options->save_best ? trainer_save(trainer, "_best") : 0;
}

int trainer_run(struct trainer *trainer)
{
    const struct options *options = trainer->options;
    struct report_result result = {.loss = 0};
    bool tested = false;

    trainer->began = comm_now();
    trainer->communicated = trainer_communicated(trainer);
    if (!trainer->resumed)
        trainer->step = trainer->epoch * trainer_steps(trainer);
    while (!options->evaluate && !trainer_is_enough(trainer) && trainer->epoch < options->epochs &&
           !trainer_is_done(trainer)) {
        if (trainer_learn(trainer, &result) < 0)
            return -1;
        tested = true;
    }
    if (trainer_is_enough(trainer))
        report_enough(&trainer->report, trainer->idle, trainer->best);
    if (!tested && (trainer_test(trainer, &result) < 0 || trainer_check_hash(trainer) < 0))
        return -1;
    if (trainer_keep_check(trainer) < 0)
        return -1;
    if (options->save_model && trainer_save(trainer, "") < 0)
        return -1;
    if (trainer_measure(trainer, trainer->began, trainer->communicated, &result) < 0)
        return -1;
    records_share(trainer->records.to, result.share);
    report_end(&trainer->report, &result, dist_get_backend(trainer->comm->group),
               trainer->comm->world);
    return trainer_records_end(trainer);
}
