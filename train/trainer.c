/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The training of one rank: preparation, communication with the other ranks, output of rank 0, and
 * the loops over steps and epochs.
 */
#include "trainer.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "failure.h"
#include "gemm.h"
#include "rng.h"
#include "tools/common/output.h"

/* ---- collectives; each blocks until all ranks have called it, at most the group's timeout ---- */

/* Adds the time since start to the communication time. Converts a status to 0 or -1. */
static int comm_ended(struct comm *comm, double start, dist_status status, const char *what)
{
    comm->seconds += comm_now() - start;
    return status < 0 ? failure_dist(what) : 0;
}

/* Reduces over the ranks: DIST_SUM for results, DIST_AVG for losses. */
static int comm_reduce(struct comm *comm, double *values, size_t count, dist_op op)
{
    const double start = comm_now();

    return comm_ended(comm, start,
                      dist_all_reduce(comm->group, values, values, count, DIST_FLOAT64, op),
                      op == DIST_AVG ? "averaging the losses" : "adding up the results");
}

/* Broadcasts from rank 0. */
static int comm_broadcast(struct comm *comm, float *values, size_t count)
{
    const double start = comm_now();

    return comm_ended(comm, start, dist_broadcast(comm->group, values, count, DIST_FLOAT32, 0),
                      "receiving the parameters of rank 0");
}

/* Gathers one value from every rank; the caller frees *values_p. */
static int comm_gather(struct comm *comm, uint64_t value, uint64_t **values_p)
{
    uint64_t *values = calloc((size_t)comm->world, sizeof(*values));
    const double start = comm_now();

    if (!values)
        return failure("out of memory for a value of each of %d ranks", comm->world);
    if (comm_ended(comm, start, dist_all_gather(comm->group, &value, values, 1, DIST_UINT64),
                   "comparing the ranks") < 0) {
        free(values);
        return -1;
    }
    *values_p = values;
    return 0;
}

/*
 * Writes the ranks whose value differs from `value`, as "3, 5, 7 and 12 more". Returns their
 * number.
 */
static int comm_list_differing(const struct comm *comm, const uint64_t *values, uint64_t value,
                               char *text, size_t size)
{
    int others = 0, shown = 0;
    size_t length = 0;

    text[0] = '\0';
    for (int i = 0; i < comm->world; i++) {
        if (values[i] == value)
            continue;
        others++;
        if (length + 40 > size)
            continue;
        length += (size_t)snprintf(text + length, size - length, "%s%d", shown++ ? ", " : "", i);
    }
    if (others > shown)
        snprintf(text + length, size - length, " and %d more", others - shown);
    return others;
}

/*
 * Exchanges the ranks' results (0 or -1) of a local operation. Returns 0 if all succeeded,
 * otherwise -1 on every rank, so that no rank waits for one that has failed. The error message is
 * the rank's own, or names the ranks that could not do `what`.
 */
static int comm_agree(struct comm *comm, int result, const char *what)
{
    char own[1024], ranks[256];
    uint64_t *values = NULL;
    int failed;

    snprintf(own, sizeof(own), "%s", failure_text());
    if (comm_gather(comm, result < 0, &values) < 0)
        return result < 0 ? failure("%s", own) : -1;
    failed = comm_list_differing(comm, values, 0, ranks, sizeof(ranks));
    free(values);
    if (result < 0)
        return failure("%s", own);
    if (failed == 0)
        return 0;
    return failure(failed == 1 ? "rank %s could not %s: see its own message"
                               : "ranks %s could not %s: see their messages",
                   ranks, what);
}

/*
 * Checks that all ranks have the same value. -1: the message names the ranks that differ from the
 * majority.
 */
static int comm_compare(struct comm *comm, uint64_t value, const char *what)
{
    uint64_t *values = NULL, common = 0;
    int others, most = 0;
    char ranks[256];

    if (comm_gather(comm, value, &values) < 0)
        return -1;
    /* Find the most frequent value; if there are several, the one of the lowest rank. */
    for (int i = 0; i < comm->world; i++) {
        int count = 0;

        for (int j = 0; j < comm->world; j++)
            count += values[j] == values[i];
        if (count > most) {
            most = count;
            common = values[i];
        }
    }
    others = comm_list_differing(comm, values, common, ranks, sizeof(ranks));
    free(values);
    if (others > 0)
        return failure(
            "the ranks disagree on the %s: it is %016" PRIx64 " here, %s %s differ%s from "
            "%016" PRIx64,
            what, value, others == 1 ? "rank" : "ranks", ranks, others == 1 ? "s" : "", common);
    return 0;
}

/* ---- output of rank 0: lines on stdout, a progress bar if stderr is a terminal ---- */

enum { REPORT_BAR = 10 };   /* characters of the progress bar */
enum { REPORT_LINES = 10 }; /* lines per epoch */

static const double report_redraw = 0.1; /* minimum seconds between two updates of the bar */

/* Formats a duration as "mm:ss", or "h:mm:ss" from one hour. */
static void report_clock(double seconds, char *text, size_t size)
{
    const long whole = seconds < 0 ? 0 : (long)seconds;

    if (whole >= 3600)
        snprintf(text, size, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
    else
        snprintf(text, size, "%02ld:%02ld", whole / 60, whole % 60);
}

/*
 * Draws a bar in tqdm's layout: what:  42%|####      | 42/100 [00:03<00:04, 13.90it/s, loss=0.1]
 *
 * Line wrap is disabled while the bar is drawn, so that it occupies one line of a narrow terminal.
 */
static void report_draw(struct trainer *trainer, int64_t done)
{
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    struct report *report = &trainer->report;
    const int filled = (int)((double)done / (double)report->steps * REPORT_BAR * 8);
    const double now = comm_now(), passed = now - report->started;
    const double rate = passed > 0 ? (double)done / passed : 0.0;
    char fill[REPORT_BAR * 4 + 1] = "", elapsed[32], left[32];
    int shown = 0;

    if (done < report->steps && now - report->drawn < report_redraw)
        return;
    report->drawn = now;
    /* With UTF-8, the bar has a resolution of an eighth of a character. */
    for (; shown < filled / 8; shown++)
        strcat(fill, report->blocks ? "█" : "#");
    if (report->blocks && filled % 8) {
        strcat(fill, eighths[filled % 8]);
        shown++;
    }
    for (; shown < REPORT_BAR; shown++)
        strcat(fill, " ");
    report_clock(passed, elapsed, sizeof(elapsed));
    report_clock(rate > 0 ? (double)(report->steps - done) / rate : 0, left, sizeof(left));
    fprintf(stderr,
            "\r\x1b[?7lEpoch %" PRId64 ": %3d%%|%s| %" PRId64 "/%" PRId64
            " [%s<%s, %.2fit/s, loss=%.4f]\x1b[K\x1b[?7h",
            trainer->progress.epoch + 1, (int)(100 * done / report->steps), fill, done,
            report->steps, elapsed, left, rate, trainer->loss);
}

/* ---- reports to the records ---- */

static_assert((int)RECORDS_AHEAD >= (int)DEVICE_AHEAD,
              "the records must store the steps whose losses are pending");

static int trainer_records_open(struct trainer *trainer)
{
    const struct options *options = trainer->options;
    const int count = options_facts(options, NULL, 0);
    struct records_setup setup = {
        .options = options,
        .program = options->task->program,
        .setting_count = count,
        .epochs = options->epochs,
        .step = trainer->progress.step,
        .resumed = trainer->resumed,
        .rank = trainer->comm->rank,
        .world = trainer->comm->world,
    };

    if (!options->metrics && !options->tensorboard && !options->report && !options->trace)
        return 0;
    trainer->records.settings = calloc((size_t)count, sizeof(*trainer->records.settings));
    if (!trainer->records.settings)
        return failure("out of memory for the settings");
    options_facts(options, trainer->records.settings, count);
    setup.settings = trainer->records.settings;
    return records_open(&setup, &trainer->records.to);
}

/* Adds the time since `began` to a part of the step, and to the timeline. */
static void trainer_spent(struct trainer *trainer, enum record_part part, double began)
{
    const double ended = comm_now();

    trainer->times[part] += ended - began;
    records_span(trainer->records.to, part, trainer->progress.step + 1, 0, began, ended);
}

static int trainer_records_step(struct trainer *trainer)
{
    const double ended = comm_now();
    struct dist_ddp_bucket_times times = {.size = sizeof(times)};
    struct dist_ddp_stats stats = {.size = sizeof(stats)};
    struct record_step step = {
        .step = trainer->progress.step,
        .epoch = trainer->progress.epoch + 1,
        .samples = trainer->taken * trainer->comm->world,
        .lr = trainer->lr,
        .seconds = ended - trainer->records.since,
    };

    if (!trainer->records.to)
        return 0;
    for (int i = 0; i < RECORD_IN_STEP; i++)
        step.parts[i] = trainer->times[i] - trainer->records.recorded[i];
    memcpy(trainer->records.recorded, trainer->times, sizeof(trainer->records.recorded));
    trainer->records.since = ended;
    /* Add the buckets of this step to the timeline. */
    if (trainer->options->trace && trainer->ddp)
        dist_ddp_get_stats(trainer->ddp, &stats);
    for (int i = 0; i < stats.buckets; i++)
        if (dist_ddp_get_bucket_times(trainer->ddp, i, &times) == DIST_OK && times.began_ns > 0)
            records_span(trainer->records.to, RECORD_BUCKET, trainer->progress.step, i,
                         1e-9 * (double)times.began_ns, 1e-9 * (double)times.ended_ns);
    return records_step(trainer->records.to, &step);
}

/* ---- --zero: each rank updates its share of the parameters ---- */

static int zero_step(void *arg, const struct dist_zero_slice *slice)
{
    struct trainer *trainer = arg;

    trainer->device->kind->slice(trainer->device, (float)trainer->lr, slice);
    return 0;
}

/* Gathers the optimizer's state in rank 0's checkpoint (save), or scatters it from there. */
static int zero_state(struct trainer *trainer, bool save)
{
    const struct model *model = trainer->model;

    for (int k = 0; k < trainer->device->optimizer_states; k++)
        for (int i = 0; i < model->tensor_count; i++) {
            float *state =
                trainer->progress.state + (size_t)k * model->parameters + model->tensors[i].offset;
            const dist_status status = save
                                           ? dist_zero_gather_state(trainer->zero, i, k, state, 0)
                                           : dist_zero_scatter_state(trainer->zero, i, k, state, 0);

            if (status < 0)
                return failure_dist("transferring the optimizer's state");
        }
    return 0;
}

/* Creates the dist_zero, which then owns the model's weights; the ranks of a node share them. */
static int zero_open(struct trainer *trainer)
{
    struct model *model = trainer->model;
    const int states = trainer->device->optimizer_states;
    struct dist_zero_options options = DIST_ZERO_OPTIONS_INIT;
    struct dist_zero_parameter parameters[MODEL_MAX_TENSORS];
    struct dist_zero_stats stats = {.size = sizeof(stats)};

    options.bucket_bytes = (size_t)(trainer->options->bucket_mb * (1 << 20));
    if (options.bucket_bytes > 0 && options.bucket_bytes < 1 << 20)
        options.first_bucket_bytes = options.bucket_bytes;
    options.max_norm = trainer->options->clip;
    options.state_floats = states;
    options.step = zero_step;
    options.step_arg = trainer;
    for (int i = 0; i < model->tensor_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];

        parameters[i] = (struct dist_zero_parameter){
            .name = tensor->name,
            .values = model->weights + tensor->offset,
            .count = tensor->count,
            .gradient = trainer->device->sums + tensor->offset,
        };
    }
    if (dist_zero_create(trainer->comm->group, parameters, model->tensor_count, &options,
                         &trainer->zero) < 0)
        return failure_dist("receiving the parameters of rank 0");
    model_move(model, dist_zero_values(trainer->zero, 0));
    if (dist_zero_get_stats(trainer->zero, &stats) == DIST_OK && trainer->comm->rank == 0)
        output_print("Optimizer state: %" PRIu64 " of %zu bytes per rank | "
                     "a copy of the parameters for %d rank%s\n",
                     stats.state_bytes, (size_t)states * sizeof(float) * model->parameters,
                     stats.sharers, stats.sharers == 1 ? "" : "s");
    return trainer->resumed ? zero_state(trainer, false) : 0;
}

/* ---- average of the gradients ---- */

/* Creates the dist_ddp, which broadcasts rank 0's weights. Collective. */
static int trainer_ddp_open(struct trainer *trainer)
{
    struct dist_ddp_options options = DIST_DDP_OPTIONS_INIT;
    struct dist_ddp_parameter parameters[MODEL_MAX_TENSORS + 2];
    const struct model *model = trainer->model;
    const char *compression = trainer->options->compression;
    float *sums = trainer->device->sums;
    int count = 0;

    /*
     * List the gradients to average. With --reproducible, the rounded sums are complete only at the
     * end of a step, so they are one parameter; the tail of the grid is another.
     */
    if (trainer->options->reproducible) {
        parameters[count++] = (struct dist_ddp_parameter){"all gradients", model->weights,
                                                          model->parameters, sums, false};
        parameters[count++] =
            (struct dist_ddp_parameter){"loss", NULL, GRID_TAIL, sums + model->parameters, false};
    } else {
        for (; count < model->tensor_count; count++) {
            const struct model_tensor *tensor = &model->tensors[count];

            parameters[count] =
                (struct dist_ddp_parameter){tensor->name, model->weights + tensor->offset,
                                            tensor->count, sums + tensor->offset, false};
        }
        if (model->buffer_count > 0)
            parameters[count++] = (struct dist_ddp_parameter){
                "running means and variances", model->buffers, model->buffer_count, NULL, true};
    }
    options.wire = strcmp(compression, "fp16") == 0   ? DIST_DDP_WIRE_FLOAT16
                   : strcmp(compression, "bf16") == 0 ? DIST_DDP_WIRE_BFLOAT16
                   : strcmp(compression, "int8") == 0 ? DIST_DDP_WIRE_INT8
                                                      : DIST_DDP_WIRE_SAME;
    options.bucket_bytes = (size_t)(trainer->options->bucket_mb * (1 << 20));
    if (options.bucket_bytes > 0 && options.bucket_bytes < 1 << 20)
        options.first_bucket_bytes = options.bucket_bytes;
    if (dist_ddp_create(trainer->comm->group, parameters, count, &options, &trainer->ddp) < 0)
        return failure_dist("receiving the parameters of rank 0");
    if (trainer->device->streamed && dist_ddp_set_stream(trainer->ddp, trainer->device->stream) < 0)
        return failure_dist("setting the stream of the GPU");
    return 0;
}

/* Keeps the message of the first failure; trainer_ddp_finish returns the error. */
static void ddp_ready(void *arg, int tensor)
{
    struct trainer *trainer = arg;
    dist_status status;

    if (trainer->failed)
        return;
    status = trainer->zero ? dist_zero_ready(trainer->zero, tensor)
                           : dist_ddp_ready(trainer->ddp, tensor);
    trainer->failed = status < 0 && failure_dist("averaging the gradients") < 0;
}

/* Called when a forward or backward pass begins on the CPU. */
static void ddp_begins(void *arg, bool backward)
{
    struct trainer *trainer = arg;

    if (trainer->records.pass != RECORD_PARTS)
        trainer_spent(trainer, trainer->records.pass, trainer->records.mark);
    trainer->records.mark = comm_now();
    trainer->records.pass = backward ? RECORD_BACKWARD : RECORD_FORWARD;
}

/*
 * Scales the gradients so that their norm is at most max_norm, unless the norm is not finite.
 * Deterministic: it uses SUMS partial sums so that vectorisation does not change the order of
 * additions.
 */
static void clip(double max_norm, float *gradients, size_t count)
{
    enum { SUMS = 8 };
    double sums[SUMS] = {0.0}, norm = 0.0;
    float scale;

    for (size_t i = 0; i < count; i++)
        sums[i % SUMS] += (double)gradients[i] * (double)gradients[i];
    for (int i = 0; i < SUMS; i++)
        norm += sums[i];
    norm = sqrt(norm);
    if (!isfinite(norm) || norm <= max_norm)
        return;
    scale = (float)(max_norm / (norm + 1e-6));
    for (size_t i = 0; i < count; i++)
        gradients[i] *= scale;
}

/* Waits until the sums are the mean over the ranks. With --zero, also updates the parameters. */
static int trainer_ddp_finish(struct trainer *trainer)
{
    const double start = comm_now(), most = trainer->options->clip;
    dist_status status;

    if (trainer->options->reproducible) {
        ddp_ready(trainer, 1);
        ddp_ready(trainer, 0);
    }
    if (trainer->failed)
        return -1;
    if (trainer->zero) {
        struct dist_zero_stats before = {.size = sizeof(before)}, after = {.size = sizeof(after)};

        /* Waiting for other ranks counts as communication, the other time as the optimizer's. */
        dist_zero_get_stats(trainer->zero, &before);
        status = dist_zero_finish(trainer->zero);
        dist_zero_get_stats(trainer->zero, &after);
        trainer->times[RECORD_WAIT] += after.waited - before.waited;
        trainer->times[RECORD_UPDATE] += after.worked - before.worked;
        return status < 0 ? failure_dist("averaging the gradients and updating the parameters") : 0;
    }
    status = dist_ddp_finish(trainer->ddp);
    trainer_spent(trainer, RECORD_WAIT, start);
    if (status < 0)
        return failure_dist("averaging the gradients");
    if (most <= 0.0)
        return 0;
    /*
     * With --reproducible, the tail of the grid is a parameter of the ddp, but must not count for
     * the norm.
     */
    if (trainer->options->reproducible)
        clip(most, trainer->device->sums, trainer->model->parameters);
    else if (dist_ddp_clip(trainer->ddp, most, NULL) < 0)
        return failure_dist("clipping the gradients");
    return 0;
}

/* ---- a step ---- */

/* Returns this rank's samples per step; the last step of an epoch may have fewer. */
static int64_t trainer_step_samples(const struct trainer *trainer)
{
    return trainer->local_batch * trainer->options->accumulate;
}

/* Returns the learning rate of the current step according to --schedule and --warmup. */
static double trainer_rate(const struct trainer *trainer)
{
    const struct options *options = trainer->options;
    const double count = (double)trainer->train.count;
    const double warm =
        (double)(options->warmup * trainer_step_samples(trainer)) * trainer->comm->world;
    const double all = (double)options->epochs * count - warm;
    const double done =
        (double)trainer->progress.epoch * count + (double)trainer->progress.samples - warm;
    /* The progress after --warmup, 0 to 1; independent of the number of ranks. */
    const double part = done > 0.0 && all > 0.0 ? fmin(done / all, 1.0) : 0.0;
    double rate = options->lr;

    if (trainer->progress.step < options->warmup)
        rate *= (double)(trainer->progress.step + 1) / (double)options->warmup;
    if (strcmp(options->schedule, "cosine") == 0)
        return rate * 0.5 * (1.0 + cos(3.14159265358979323846 * part));
    if (strcmp(options->schedule, "step") == 0)
        return rate * pow(options->gamma, (double)trainer->progress.epoch);
    return rate;
}

/* Returns the number of micro-batches in a batch of `count` samples. */
static int trainer_parts(const struct trainer *trainer, int64_t count)
{
    return count % trainer->micro_batches == 0 ? trainer->micro_batches : 1;
}

/* Chooses this rank's samples of batch `number` of the epoch. */
static int trainer_plan(void *arg, int64_t number, struct loader_item *items)
{
    const struct trainer *trainer = arg;
    const struct options *options = trainer->options;
    const int64_t most = trainer->local_batch, first = number * most;
    const int64_t before =
        number % options->accumulate * most; /* samples of the same step in earlier batches */
    const int64_t left = (int64_t)dist_sampler_count(trainer->sampler) - first;
    const int64_t count = left < most ? left : most;
    const uint64_t step = (uint64_t)(trainer->begun + number / options->accumulate);
    const int parts = trainer_parts(trainer, count);
    int filled = 0;

    for (int m = 0; m < parts; m++) {
        for (int64_t i = m; i < count; i += parts) {
            struct loader_item *item = &items[filled++];

            item->index = (size_t)dist_sampler_at(trainer->sampler, (uint64_t)(first + i));
            item->position = (uint32_t)((before + i) * trainer->comm->world + trainer->comm->rank);
            item->augment_key = 0;
            if (options->augment)
                item->augment_key =
                    rng_key((uint64_t)options->seed, RNG_AUGMENT, step, item->position) | 1;
        }
    }
    return filled;
}

static struct pass trainer_pass(const struct trainer *trainer, const struct batch *batch,
                                bool training)
{
    return (struct pass){
        .batch = batch->count,
        .training = training,
        .weight = training ? 1.0F / (float)trainer->taken : 0.0F,
        .seed = (uint64_t)trainer->options->seed,
        .step = (uint64_t)trainer->progress.step,
        .positions = batch->positions,
    };
}

/* With --accumulate, a step has several batches, and gradients are complete after the last one. */
int trainer_gradients(struct trainer *trainer, int64_t step)
{
    const int64_t most = trainer_step_samples(trainer), begin = step * most;
    const int64_t all = (int64_t)dist_sampler_count(trainer->sampler), left = all - begin;
    const int64_t end = begin + (left < most ? left : most);

    if (step == 0) {
        trainer->begun = trainer->progress.step;
        loader_begin(trainer->loader, (all + trainer->local_batch - 1) / trainer->local_batch,
                     trainer_plan, trainer);
    }
    trainer->taken = end - begin;
    for (int64_t first = begin; first < end; first += trainer->local_batch) {
        const double started = comm_now();
        const struct batch *batch = loader_next(trainer->loader);
        const bool listens = end - first <= trainer->local_batch &&
                             (trainer->ddp || trainer->zero) && !trainer->options->reproducible;
        const struct model_listener listener = {listens ? ddp_ready : NULL, trainer, ddp_begins};
        struct pass pass = trainer_pass(trainer, batch, true);
        int result;

        pass.add = first > begin;
        trainer_spent(trainer, RECORD_DATA, started);
        trainer->records.mark = comm_now();
        trainer->records.pass = RECORD_PARTS;
        result = trainer->device->kind->gradients(trainer->device, &pass, batch,
                                                  trainer_parts(trainer, batch->count), &listener);
        /* For devices that do not report passes, all time counts as the backward pass. */
        trainer_spent(trainer, RECORD_BACKWARD, trainer->records.mark);
        if (result < 0)
            return -1;
    }
    return 0;
}

int trainer_update(struct trainer *trainer)
{
    const double began = comm_now();
    const int result = trainer->device->kind->update(trainer->device, (float)trainer->lr);

    trainer_spent(trainer, RECORD_UPDATE, began);
    trainer->progress.step++;
    trainer->steps_here++;
    return result;
}

/* ---- preparation ---- */

enum { TRAINER_TEST_MOST = 64 }; /* maximum samples per test pass; more would only use memory */

/* Returns this rank's part of a global batch, at least one sample. */
static int64_t trainer_part(const struct trainer *trainer, int64_t batch)
{
    return batch > trainer->comm->world ? batch / trainer->comm->world : 1;
}

/* If the model computes on a GPU, the host has only the weights. */
static int trainer_open_model(struct trainer *trainer)
{
    const struct options *options = trainer->options;
    const char *products = gemm_start((int)options->threads);
    const bool host = strcmp(options->device, "cpu") == 0;
    struct dist_sampler_options sampler = DIST_SAMPLER_OPTIONS_INIT;
    int64_t capacity = trainer_part(trainer, options->test_batch_size);
    struct device_setup setup = {
        .group = trainer->comm->group,
        .grid = options->reproducible,
        .sharded = options->zero,
        .world = trainer->comm->world,
        .optimizer = options->optimizer,
        .momentum = (float)options->momentum,
        .weight_decay = (float)options->weight_decay,
        .local_rank = trainer->comm->local_rank,
    };

    capacity = capacity < TRAINER_TEST_MOST ? capacity : TRAINER_TEST_MOST;
    capacity = capacity > trainer->local_batch ? capacity : trainer->local_batch;
    setup.capacity = (int)capacity;
    if (model_create(options->arch, options->task->data->shape, host ? setup.capacity : 1,
                     host ? setup.group : NULL, &trainer->model) < 0)
        return -1;
    if (options->reproducible && trainer->model->buffer_count > 0)
        return failure("--reproducible: the running means and variances of %s depend on the number "
                       "of ranks: omit this option, or use another --arch",
                       trainer->model->arch);
    setup.model = trainer->model;
    if (device_open(options->device, &setup, &trainer->device) < 0)
        return -1;
    if (host && trainer->comm->rank == 0)
        output_print("Matrix products: %s\n", products);
    if (batch_create(options->task->data, setup.capacity, &trainer->batch) < 0 ||
        loader_create(&trainer->train, (int)options->workers, (int)trainer->local_batch,
                      &trainer->loader) < 0)
        return -1;
    sampler.count = trainer->train.count;
    sampler.seed = (uint64_t)options->seed;
    sampler.rank = trainer->comm->rank;
    sampler.world_size = trainer->comm->world;
    if (dist_sampler_create(NULL, &sampler, &trainer->sampler) < 0)
        return failure_dist("creating the sampler");
    model_init(trainer->model, (uint64_t)options->seed);
    return 0;
}

int trainer_prepare(const struct options *options, struct comm *comm, struct trainer *trainer)
{
    const struct dataset_kind *kind = options->task->data;
    const int64_t global = options->batch_size, world = comm->world;
    const uint64_t seed = (uint64_t)options->seed;
    locale_t user = (locale_t)0;

    trainer->options = options;
    trainer->comm = comm;
    if (comm->rank == 0) {
        trainer->report.bar = isatty(STDERR_FILENO);
        /*
         * Use newlocale for the user's character set; setlocale would change how numbers are parsed
         * and printed.
         */
        user = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    }
    trainer->report.blocks = user && strcmp(nl_langinfo_l(CODESET, user), "UTF-8") == 0;
    if (user)
        freelocale(user);
    trainer->local_batch = trainer_part(trainer, global);
    trainer->micro_batches = 1;
    if (options->reproducible && TRAINER_MICRO_BATCHES % world == 0)
        trainer->micro_batches = (int)(TRAINER_MICRO_BATCHES / world);
    if (comm->rank == 0 && trainer->local_batch * world != global)
        fprintf(stderr,
                "%s: warning: a global batch of %" PRId64 " cannot be divided among %d "
                "ranks: using %" PRId64 " (%" PRId64 " per rank)\n",
                options->task->program, global, comm->world, trainer->local_batch * world,
                trainer->local_batch);
    if (!options->data) {
        dataset_draw(kind, (size_t)options->train_samples, true, seed, &trainer->train);
        dataset_draw(kind, (size_t)options->test_samples, false, seed, &trainer->test);
    } else if (dataset_read(kind, options->data, true, &trainer->train) < 0 ||
               dataset_read(kind, options->data, false, &trainer->test) < 0) {
        return -1;
    }
    if (trainer_open_model(trainer) < 0 || trainer_keep_open(trainer) < 0)
        return -1;
    if (options->loss_log && comm->rank == 0) {
        trainer->loss_log = fopen(options->loss_log, trainer->resumed ? "a" : "w");
        if (!trainer->loss_log)
            return failure("--loss-log %s: %s", options->loss_log, strerror(errno));
        setvbuf(trainer->loss_log, NULL, _IOLBF, BUFSIZ);
    }
    return trainer_records_open(trainer);
}

/*
 * Checks that the ranks have equal options, because otherwise they would wait for each other until
 * the timeout. Compares a hash of all options; if it differs, compares the options one by one to
 * name the first difference. Options for the connection and the machine, and paths, may differ
 * between ranks.
 */
static int trainer_compare_options(const struct options *options, struct comm *comm)
{
    const uint64_t files = options->checkpoint || options->resume;
    uint64_t hash = files;
    char text[64];

    for (int round = 0; round < 2; round++) {
        bool own = false; /* in a group of options that may differ */

        for (int i = 0; i < options_args.count; i++) {
            const struct args_row *row = &options_args.rows[i];
            const void *at = (const char *)options + row->offset;
            uint64_t value = 0;

            if (row->kind == ARGS_GROUP)
                own =
                    strncmp(row->names, "Processes", 9) == 0 || strcmp(row->names, "Machine") == 0;
            if (own || row->kind == ARGS_GROUP || row->kind == ARGS_TEXT ||
                row->kind == ARGS_ACTION)
                continue;
            /* Bits of the value; for a choice, its first characters. */
            if (row->kind == ARGS_FLAG || row->kind == ARGS_SWITCH)
                value = *(const bool *)at;
            else if (row->kind == ARGS_CHOICE)
                memcpy(&value, *(const char *const *)at,
                       strnlen(*(const char *const *)at, sizeof(value)));
            else
                memcpy(&value, at, sizeof(value));
            /* The factor is odd, so different values give different hashes. */
            hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
            snprintf(text, sizeof(text), "option --%.*s", (int)strcspn(row->names, ","),
                     row->names);
            if (round > 0 && comm_compare(comm, value, text) < 0)
                return -1;
        }
        if (round == 0 && comm_compare(comm, hash, "options") == 0)
            return 0;
    }
    return comm_compare(comm, files, "option --checkpoint or --resume");
}

/* Sends the state that rank 0 has read from a checkpoint to all ranks; collective. */
static int trainer_keep_share(struct trainer *trainer)
{
    int64_t *const numbers[] = {&trainer->progress.epoch, &trainer->progress.samples,
                                &trainer->progress.step, &trainer->progress.tests,
                                &trainer->progress.idle};
    enum { NUMBERS = sizeof(numbers) / sizeof(numbers[0]) };
    double values[NUMBERS + 2] = {[NUMBERS] = trainer->progress.best, trainer->resumed};

    if (!trainer->progress.state)
        return 0;
    for (int i = 0; i < NUMBERS; i++)
        values[i] = (double)*numbers[i];
    if (trainer->comm->rank != 0)
        memset(values, 0, sizeof(values));
    if (comm_reduce(trainer->comm, values, NUMBERS + 2, DIST_SUM) < 0)
        return -1;
    for (int i = 0; i < NUMBERS; i++)
        *numbers[i] = (int64_t)values[i];
    trainer->progress.best = values[NUMBERS];
    trainer->resumed = values[NUMBERS + 1] != 0.0;
    if (!trainer->resumed)
        return 0;
    if (comm_broadcast(trainer->comm, trainer->progress.state, trainer->progress.count) < 0)
        return -1;
    return trainer->device->kind->state(trainer->device, false, trainer->progress.state);
}

/*
 * Reads or draws the data, creates the model, and gives all ranks the same parameters. Succeeds on
 * all ranks or fails on all.
 */
static int trainer_open(const struct options *options, struct comm *comm, struct trainer *trainer)
{
    const int result = trainer_prepare(options, comm, trainer);
    const uint64_t records = (uint64_t)(options->metrics || options->tensorboard) |
                             (uint64_t)(options->report != NULL) << 1 |
                             (uint64_t)(options->trace != NULL) << 2 |
                             (uint64_t)options->record_interval << 3;

    if (comm_agree(comm, result, "get ready") < 0 || trainer_compare_options(options, comm) < 0 ||
        comm_compare(comm, trainer->train.count, "number of training samples") < 0 ||
        comm_compare(comm, trainer->test.count, "number of test samples") < 0 ||
        comm_compare(comm, trainer->model->parameters, "number of parameters") < 0 ||
        trainer_keep_share(trainer) < 0)
        return -1;
    if (!trainer->resumed && options->start_epoch >= 0)
        trainer->progress.epoch = options->start_epoch;
    if (comm_compare(comm, (uint64_t)trainer->progress.epoch, "epoch to start from") < 0 ||
        (options->zero ? zero_open(trainer) : trainer_ddp_open(trainer)) < 0 ||
        comm_compare(comm, records, "options of the records") < 0 ||
        records_start(trainer->records.to, comm->group) < 0)
        return -1;
    return comm_agree(comm, trainer->device->kind->put(trainer->device), "get ready");
}

int trainer_close(struct trainer *trainer)
{
    const int lost = trainer->loss_log && ferror(trainer->loss_log);
    int result = 0;
    char failed[1024];

    /* Save the reason for the failure of the training before later errors replace it. */
    snprintf(failed, sizeof(failed), "%s", failure_text());
    records_close(trainer->records.to, failed, 0);
    free(trainer->records.settings);
    /* The file is line-buffered, so an earlier write may have failed. */
    if (trainer->loss_log && (fclose(trainer->loss_log) != 0 || lost))
        result = failure("--loss-log %s: %s", trainer->options->loss_log,
                         lost ? "some lines could not be written" : strerror(errno));
    if ((trainer->zero ? dist_zero_destroy(trainer->zero) : dist_ddp_destroy(trainer->ddp)) < 0)
        result = failure_dist("ending the training");
    if (writer_destroy(trainer->writer) < 0)
        result = -1;
    free(trainer->progress.state);
    device_close(trainer->device);
    model_destroy(trainer->model);
    batch_destroy(&trainer->batch);
    loader_destroy(trainer->loader);
    dist_sampler_destroy(trainer->sampler);
    dataset_destroy(&trainer->train);
    dataset_destroy(&trainer->test);
    return result;
}

/* ---- the loops ---- */

/* True if --max-steps or --dry-run end the training here. */
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

/* Returns the seconds of exposed communication of this rank. */
static double trainer_communicated(const struct trainer *trainer)
{
    return trainer->comm->seconds + trainer->times[RECORD_WAIT];
}

/*
 * Computes the seconds since `began`, and the share of this time (0 to 1) that the ranks spent in
 * exposed communication and in waiting for other ranks, as a mean over the ranks. communicated: the
 * value of trainer_communicated() at that time. Collective.
 */
static int trainer_measure(struct trainer *trainer, double began, double communicated,
                           double *seconds_p, double *share_p)
{
    double sums[2] = {comm_now() - began, trainer_communicated(trainer) - communicated};

    *seconds_p = sums[0];
    if (comm_reduce(trainer->comm, sums, 2, DIST_SUM) < 0)
        return -1;
    *share_p = sums[0] > 0 ? sums[1] / sums[0] : 0.0;
    return 0;
}

/*
 * Obtains the losses of the steps since the last call and averages them over the ranks. Waits for
 * the device and for the other ranks.
 */
static int trainer_take_losses(struct trainer *trainer)
{
    const int64_t first = trainer->progress.step - trainer->pending + 1;
    double losses[DEVICE_AHEAD];

    if (trainer->pending == 0)
        return 0;
    if (trainer->device->kind->losses(trainer->device, trainer->pending, losses) < 0)
        return -1;
    if (!trainer->options->reproducible &&
        comm_reduce(trainer->comm, losses, (size_t)trainer->pending, DIST_AVG) < 0)
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

/*
 * Copies the training state to a file of --checkpoint, which is written in the background. If
 * writing fails, the next call or the end of the training reports it. Collective.
 */
static int trainer_keep(struct trainer *trainer)
{
    if (!trainer->options->checkpoint)
        return 0;
    if (trainer->zero && zero_state(trainer, true) < 0)
        return -1;
    return comm_agree(trainer->comm, trainer->writer ? trainer_keep_write(trainer) : 0,
                      "save the checkpoint");
}

/* Runs step `step` of the epoch. */
static int trainer_step(struct trainer *trainer, int64_t step)
{
    const int64_t all = (int64_t)trainer->train.count;
    const struct options *options = trainer->options;
    const struct report *report = &trainer->report;
    const int64_t world = trainer->comm->world, interval = options->checkpoint_interval;
    const double before = (double)report->before / (double)report->batch; /* in steps */
    /*
     * True if the loss is required now; equal on all ranks. Otherwise the output shows an earlier
     * loss.
     */
    const bool due = step % report->interval == 0 || step + 1 >= report->steps ||
                     ((options->metrics || options->tensorboard) &&
                      (trainer->progress.step + 1) % options->record_interval == 0);

    trainer->lr = trainer_rate(trainer);
    if (trainer_gradients(trainer, step) < 0 || trainer_ddp_finish(trainer) < 0 ||
        trainer_update(trainer) < 0 || trainer_records_step(trainer) < 0)
        return -1;
    trainer->pending++;
    /* The last batch of an epoch is padded with repeated samples. */
    trainer->progress.samples += trainer->taken * world;
    trainer->progress.samples = trainer->progress.samples < all ? trainer->progress.samples : all;
    if ((due || trainer->pending == DEVICE_AHEAD) && trainer_take_losses(trainer) < 0)
        return -1;
    if (report->bar)
        report_draw(trainer, step + 1);
    else if (trainer->comm->rank == 0 && step % report->interval == 0)
        output_print("Train Epoch: %" PRId64 " [%" PRId64 "/%zu (%.0f%%)]\tLoss: %.6f\n",
                     trainer->progress.epoch + 1, report->before + step * report->batch,
                     trainer->train.count,
                     100.0 * (before + (double)step) / (before + (double)report->steps),
                     trainer->loss);
    return interval > 0 && trainer->progress.step % interval == 0 ? trainer_keep(trainer) : 0;
}

/*
 * Runs an epoch up to its end or --max-steps. Continues after the samples that a checkpoint
 * contains.
 */
static int trainer_epoch(struct trainer *trainer)
{
    const int64_t global = trainer_step_samples(trainer) * trainer->comm->world;
    const int64_t all = (int64_t)trainer->train.count;
    const double began = comm_now(), communicated = trainer_communicated(trainer);
    const struct dist_sampler_state state = {.seed = (uint64_t)trainer->options->seed,
                                             .epoch = (uint64_t)trainer->progress.epoch,
                                             .seen = (uint64_t)trainer->progress.samples};
    struct report *report = &trainer->report;
    int64_t step = 0, count = 0, steps;
    double seconds, share;

    if (dist_sampler_restore(trainer->sampler, &state) < 0)
        return failure_dist("starting the epoch");
    steps = trainer_steps(trainer);
    trainer->losses = 0.0;
    trainer->records.since = comm_now();
    report->steps = steps;
    report->batch = global;
    report->before = trainer->progress.samples;
    report->interval = trainer->options->log_interval;
    if (report->interval == 0)
        report->interval = (report->before / global + steps + REPORT_LINES - 1) / REPORT_LINES;
    if (report->interval == 0)
        report->interval = 1;
    report->started = comm_now();
    report->drawn = 0.0;
    for (; step < steps && !trainer_is_done(trainer); step++) {
        if (trainer_step(trainer, step) < 0)
            return -1;
        count += trainer->taken * trainer->comm->world;
    }
    if (trainer_take_losses(trainer) < 0 ||
        trainer_measure(trainer, began, communicated, &seconds, &share) < 0)
        return -1;
    if (report->bar && step > 0)
        fputc('\n', stderr);
    if (trainer->comm->rank == 0 && step > 0)
        output_print("epoch %" PRId64 " | loss %.6f | lr %.2e | %.2f ms/step | %.0f samples/s | "
                     "communication %.1f%%\n",
                     trainer->progress.epoch + 1, trainer->losses / (double)step, trainer->lr,
                     1e3 * seconds / (double)step, (double)count / seconds, 100.0 * share);
    if (trainer->progress.samples >= all) {
        trainer->progress.epoch++;
        trainer->progress.samples = 0;
    }
    return 0;
}

/*
 * Tests with the whole test set, divided among the ranks, each sample once. If a rank fails, the
 * other ranks detect it because the sum of the losses is NaN.
 */
static int trainer_test(struct trainer *trainer, struct record_test *test)
{
    const struct model *model = trainer->model;
    const size_t world = (size_t)trainer->comm->world, count = trainer->test.count;
    const double began = comm_now();
    double sums[3] = {0.0, 0.0, 0.0}; /* loss, correct, samples */
    struct batch *batch = &trainer->batch;
    struct loss loss = {0.0, 0};
    struct pass pass;
    double seconds;
    int tested = 0;

    /* Broadcast rank 0's running means; with --zero there is no ddp that does it. */
    if (model->buffer_count > 0 && !trainer->ddp &&
        comm_broadcast(trainer->comm, model->buffers, model->buffer_count) < 0)
        return -1;
    if (model->buffer_count > 0 && trainer->ddp && dist_ddp_sync_buffers(trainer->ddp) < 0)
        return failure_dist("receiving the running means of rank 0");
    batch->count = 0;
    for (size_t i = (size_t)trainer->comm->rank; i < count && tested == 0; i += world) {
        batch_add(batch, &trainer->test, i, 0, 0);
        if (batch->count < batch->capacity && i + world < count)
            continue;
        pass = trainer_pass(trainer, batch, false);
        tested = trainer->device->kind->test(trainer->device, &pass, batch, &loss);
        sums[0] += loss.total;
        sums[1] += (double)loss.correct;
        sums[2] += pass.batch;
        batch->count = 0;
    }
    sums[0] = tested < 0 ? (double)NAN : sums[0];
    if (comm_reduce(trainer->comm, sums, 3, DIST_SUM) < 0 || tested < 0)
        return -1;
    *test = (struct record_test){.step = trainer->progress.step,
                                 .epoch = trainer->progress.epoch,
                                 .loss = sums[0] / sums[2]};
    if (!isfinite(test->loss))
        return failure("the test after step %" PRId64 ": the loss is %f", test->step, test->loss);
    test->correct = (int64_t)sums[1];
    test->count = (int64_t)sums[2];
    trainer_spent(trainer, RECORD_TEST, began);
    if (trainer->comm->rank == 0)
        output_print("\nTest set: Average loss: %.4f, Accuracy: %" PRId64 "/%" PRId64
                     " (%.0f%%)\n\n",
                     test->loss, test->correct, test->count,
                     100.0 * (double)test->correct / (double)test->count);
    if (trainer->options->report &&
        trainer_measure(trainer, trainer->began, trainer->communicated, &seconds, &test->share) < 0)
        return -1;
    return records_test(trainer->records.to, test);
}

/*
 * Copies the weights to the host, and checks that their hash is the same on all ranks. trainer_save
 * then uses the host's copy.
 */
static int trainer_check_hash(struct trainer *trainer)
{
    uint64_t hash;

    if (trainer->device->kind->get(trainer->device) < 0)
        return -1;
    hash = hash_floats(trainer->model->weights, trainer->model->parameters);
    if (comm_compare(trainer->comm, hash, "parameter hash") < 0)
        return -1;
    if (trainer->comm->rank == 0)
        output_print("Parameter hash: %016" PRIx64 " (%d rank%s)\n", hash, trainer->comm->world,
                     trainer->comm->world == 1 ? "" : "s agree");
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
        result = checkpoint_save(path, trainer->model, trainer->progress.epoch);
    return comm_agree(trainer->comm, result, "save the model");
}

/* True if none of the last --patience tests had a smaller loss. */
static bool trainer_stops_early(const struct trainer *trainer)
{
    const int64_t patience = trainer->options->patience;

    return patience > 0 && trainer->progress.idle >= patience;
}

int trainer_run(const struct options *options, struct comm *comm, struct trainer *trainer)
{
    struct record_test test;
    double seconds, share;
    bool tested = false;
    int ended;

    if (trainer_open(options, comm, trainer) < 0)
        return -1;
    trainer->began = comm_now();
    trainer->communicated = trainer_communicated(trainer);
    if (!trainer->resumed)
        trainer->progress.step = trainer->progress.epoch * trainer_steps(trainer);
    while (!options->evaluate && !trainer_stops_early(trainer) &&
           trainer->progress.epoch < options->epochs && !trainer_is_done(trainer)) {
        struct training_state *progress = &trainer->progress;
        bool better = false;

        if (trainer_epoch(trainer) < 0 || trainer_test(trainer, &test) < 0 ||
            trainer_check_hash(trainer) < 0)
            return -1;
        /*
         * Store the test in the state before it is saved, unless --max-steps ended the epoch early:
         * a run that continues from there will test at the end of that epoch.
         */
        if (progress->samples == 0) {
            better = progress->tests++ == 0 || test.loss < progress->best;
            progress->best = better ? test.loss : progress->best;
            progress->idle = better ? 0 : progress->idle + 1;
        }
        if (trainer_keep(trainer) < 0 ||
            (better && options->save_best && trainer_save(trainer, "_best") < 0))
            return -1;
        tested = true;
    }
    if (trainer_stops_early(trainer) && comm->rank == 0)
        output_print("stopping early: no test in %" PRId64 " epochs had a smaller loss than %.4f\n",
                     trainer->progress.idle, trainer->progress.best);
    if (!tested && (trainer_test(trainer, &test) < 0 || trainer_check_hash(trainer) < 0))
        return -1;
    if (options->checkpoint && comm_agree(comm, trainer->writer ? writer_wait(trainer->writer) : 0,
                                          "save the checkpoint") < 0)
        return -1;
    if ((options->save_model && trainer_save(trainer, "") < 0) ||
        trainer_measure(trainer, trainer->began, trainer->communicated, &seconds, &share) < 0)
        return -1;
    if (comm->rank == 0)
        output_print(
            "Final: accuracy %.2f%% (%" PRId64 "/%" PRId64 ") | time %.1f s | communication "
            "%.1f%% | backend %s | %d rank%s\n",
            100.0 * (double)test.correct / (double)test.count, test.correct, test.count, seconds,
            100.0 * share, dist_get_backend(comm->group), comm->world, comm->world == 1 ? "" : "s");
    ended = records_close(trainer->records.to, NULL, share);
    trainer->records.to = NULL;
    return ended;
}
