/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's training: making it ready, and the loops over steps and epochs. */
#include "trainer.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "gemm.h"
#include "rng.h"

/* ---- telling the records what happens ---- */

static_assert((int)RECORDS_AHEAD >= (int)DEVICE_AHEAD, "losses come so late");

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

static int trainer_records_start(struct trainer *trainer)
{
    const struct options *options = trainer->options;
    const uint64_t asked = (uint64_t)(options->metrics || options->tensorboard) |
                           (uint64_t)(options->report != NULL) << 1 |
                           (uint64_t)(options->trace != NULL) << 2 |
                           (uint64_t)options->record_interval << 3;

    if (comm_compare(trainer->comm, asked, "records that are asked for") < 0)
        return -1;
    return records_start(trainer->records.to, trainer->comm->group);
}

static int trainer_records_end(struct trainer *trainer)
{
    const int result = records_close(trainer->records.to, NULL);

    trainer->records.to = NULL;
    return result;
}

/* What is written now may fail too: that is not why the training did. */
static void trainer_records_close(struct trainer *trainer)
{
    char failed[1024];

    snprintf(failed, sizeof(failed), "%s", failure_text());
    records_close(trainer->records.to, failed);
    free(trainer->records.settings);
    trainer->records = (struct trainer_records){.to = NULL};
}

void trainer_spent(struct trainer *trainer, enum record_part part, double began)
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
        step.parts[i] = trainer->times[i] - trainer->records.told[i];
    memcpy(trainer->records.told, trainer->times, sizeof(trainer->records.told));
    trainer->records.since = ended;
    /* The buckets that travelled in this step, for the timeline. */
    if (trainer->options->trace && trainer->ddp)
        dist_ddp_get_stats(trainer->ddp, &stats);
    for (int i = 0; i < stats.buckets; i++)
        if (dist_ddp_get_bucket_times(trainer->ddp, i, &times) == DIST_OK && times.began_ns > 0)
            records_span(trainer->records.to, RECORD_BUCKET, trainer->progress.step, i,
                         1e-9 * (double)times.began_ns, 1e-9 * (double)times.ended_ns);
    return records_step(trainer->records.to, &step);
}

/* ---- a step ---- */

/* Samples of this rank in a step, but for the last one of an epoch. */
static int64_t trainer_step_samples(const struct trainer *trainer)
{
    return trainer->local_batch * trainer->options->accumulate;
}

/* The learning rate of the step at hand, as --schedule and --warmup have it. */
static double trainer_rate(const struct trainer *trainer)
{
    const struct options *options = trainer->options;
    const double count = (double)trainer->train.count;
    const double warm =
        (double)(options->warmup * trainer_step_samples(trainer)) * trainer->comm->world;
    const double all = (double)options->epochs * count - warm;
    const double done =
        (double)trainer->progress.epoch * count + (double)trainer->progress.samples - warm;
    /* 0 to 1, past the steps of --warmup. The same with any number of ranks. */
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

/* Micro-batches of a batch of `count` samples. */
static int trainer_parts(const struct trainer *trainer, int64_t count)
{
    return count % trainer->micro_batches == 0 ? trainer->micro_batches : 1;
}

/* This rank's samples of batch `number` of the epoch. */
static int trainer_plan(void *arg, int64_t number, struct loader_item *items)
{
    const struct trainer *trainer = arg;
    const struct options *options = trainer->options;
    const int64_t most = trainer->local_batch, first = number * most;
    const int64_t before = number % options->accumulate * most; /* samples of the step */
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

/* With --accumulate several batches: gradients are complete with the last one. */
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
        const struct model_listener listener =
            trainer_ddp_listener(trainer, end - first <= trainer->local_batch);
        struct pass pass = trainer_pass(trainer, batch, true);
        int result;

        pass.add = first > begin;
        trainer_spent(trainer, RECORD_DATA, started);
        trainer->records.mark = comm_now();
        trainer->records.pass = RECORD_PARTS;
        result = trainer->device->kind->gradients(trainer->device, &pass, batch,
                                                  trainer_parts(trainer, batch->count), &listener);
        /* A device that does not tell passes apart has all of it in one. */
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

/* ---- making it ready ---- */

enum { TRAINER_TEST_MOST = 64 }; /* samples of a test pass: more only need memory */

static int trainer_open_data(struct trainer *trainer)
{
    const struct options *options = trainer->options;
    const struct dataset_kind *kind = options->task->data;
    const uint64_t seed = (uint64_t)options->seed;

    if (!options->data) {
        dataset_draw(kind, (size_t)options->train_samples, true, seed, &trainer->train);
        dataset_draw(kind, (size_t)options->test_samples, false, seed, &trainer->test);
        return 0;
    }
    if (dataset_read(kind, options->data, true, &trainer->train) < 0)
        return -1;
    return dataset_read(kind, options->data, false, &trainer->test);
}

/* This rank's part of a global batch: at least one sample. */
static int64_t trainer_part(const struct trainer *trainer, int64_t batch)
{
    return batch > trainer->comm->world ? batch / trainer->comm->world : 1;
}

/* Of a model that computes on a GPU the host has nothing but the weights. */
static int trainer_open_device(struct trainer *trainer, int capacity)
{
    const struct options *options = trainer->options;
    const bool host = strcmp(options->device, "cpu") == 0;
    struct device_setup setup = {
        .group = trainer->comm->group,
        .capacity = capacity,
        .grid = options->reproducible,
        .sharded = options->zero,
        .micro_batches = trainer->micro_batches,
        .world = trainer->comm->world,
        .optimizer = options->optimizer,
        .momentum = (float)options->momentum,
        .weight_decay = (float)options->weight_decay,
        .local_rank = trainer->comm->local_rank,
    };

    if (model_create(options->arch, options->task->data->shape, host ? capacity : 1,
                     host ? setup.group : NULL, &trainer->model) < 0)
        return -1;
    if (options->reproducible && model_mixes_samples(trainer->model))
        return failure("--reproducible: the running means and variances of %s depend on the number "
                       "of ranks: leave it out, or use another --arch",
                       trainer->model->arch);
    setup.model = trainer->model;
    if (device_open(options->device, &setup, &trainer->device) < 0)
        return -1;
    if (host)
        report_products(&trainer->report, blas_name());
    return 0;
}

static int trainer_open_model(struct trainer *trainer)
{
    const struct options *options = trainer->options;
    struct dist_sampler_options sampler = DIST_SAMPLER_OPTIONS_INIT;
    int64_t capacity = trainer_part(trainer, options->test_batch_size);

    capacity = capacity < TRAINER_TEST_MOST ? capacity : TRAINER_TEST_MOST;
    capacity = capacity > trainer->local_batch ? capacity : trainer->local_batch;
    if (trainer_open_device(trainer, (int)capacity) < 0 ||
        batch_create(options->task->data, (int)capacity, &trainer->batch) < 0 ||
        loader_create(&trainer->train, (int)options->workers, (int)trainer->local_batch,
                      &trainer->loader) < 0)
        return -1;
    sampler.count = trainer->train.count;
    sampler.seed = (uint64_t)options->seed;
    sampler.rank = trainer->comm->rank;
    sampler.world_size = trainer->comm->world;
    if (dist_sampler_create(NULL, &sampler, &trainer->sampler) < 0)
        return failure_dist("the sampler");
    model_init(trainer->model, (uint64_t)options->seed);
    return 0;
}

/* Lines go out one by one: an earlier one may have failed. */
static int trainer_close_log(struct trainer *trainer)
{
    FILE *log = trainer->loss_log;
    const int lost = log && ferror(log);

    trainer->loss_log = NULL;
    if (!log || (fclose(log) == 0 && !lost))
        return 0;
    return failure("--loss-log %s: %s", trainer->options->loss_log,
                   lost ? "not all of it could be written" : strerror(errno));
}

int trainer_prepare(const struct options *options, struct comm *comm, struct trainer *trainer)
{
    const int64_t global = options->batch_size, world = comm->world;

    trainer->options = options;
    trainer->comm = comm;
    report_open(&trainer->report, comm->rank == 0, options->log_interval);
    trainer->local_batch = trainer_part(trainer, global);
    trainer->micro_batches = 1;
    if (options->reproducible && TRAINER_MICRO_BATCHES % world == 0)
        trainer->micro_batches = (int)(TRAINER_MICRO_BATCHES / world);
    if (comm->rank == 0 && trainer->local_batch * world != global)
        fprintf(stderr,
                "%s: warning: a global batch of %" PRId64 " cannot be divided among %d "
                "ranks: using %" PRId64 " (%" PRId64 " a rank)\n",
                options->task->program, global, comm->world, trainer->local_batch * world,
                trainer->local_batch);
    if (trainer_open_data(trainer) < 0 || trainer_open_model(trainer) < 0 ||
        trainer_keep_open(trainer) < 0)
        return -1;
    if (options->loss_log && comm->rank == 0) {
        trainer->loss_log = fopen(options->loss_log, trainer->resumed ? "a" : "w");
        if (!trainer->loss_log)
            return failure("--loss-log %s: %s", options->loss_log, strerror(errno));
        setvbuf(trainer->loss_log, NULL, _IOLBF, BUFSIZ);
    }
    return trainer_records_open(trainer);
}

/* Ranks that were started with other options would wait for each other until the timeout. One after
 * the other only where they differ, to name one. */
static int trainer_compare_options(const struct options *options, struct comm *comm)
{
    const uint64_t files = options->checkpoint || options->resume;
    uint64_t hash = files, value;
    const char *names;
    char text[64];
    int row = 0;

    /* The factor is odd, so that one value that differs gives another hash. */
    while (options_common(options, &row, &value))
        hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    if (comm_compare(comm, hash, "options") == 0)
        return 0;
    row = 0;
    while ((names = options_common(options, &row, &value))) {
        snprintf(text, sizeof(text), "option --%.*s", (int)strcspn(names, ","), names);
        if (comm_compare(comm, value, text) < 0)
            return -1;
    }
    return comm_compare(comm, files, "option --checkpoint or --resume");
}

int trainer_open(const struct options *options, struct comm *comm, struct trainer *trainer)
{
    const int result = trainer_prepare(options, comm, trainer);

    if (comm_agree(comm, result, "get ready") < 0 || trainer_compare_options(options, comm) < 0 ||
        comm_compare(comm, trainer->train.count, "number of training samples") < 0 ||
        comm_compare(comm, trainer->test.count, "number of test samples") < 0 ||
        comm_compare(comm, trainer->model->parameters, "number of parameters") < 0 ||
        trainer_keep_share(trainer) < 0)
        return -1;
    if (!trainer->resumed && options->start_epoch >= 0)
        trainer->progress.epoch = options->start_epoch;
    if (comm_compare(comm, (uint64_t)trainer->progress.epoch, "epoch to start from") < 0 ||
        trainer_ddp_open(trainer) < 0 || trainer_records_start(trainer) < 0)
        return -1;
    return comm_agree(comm, trainer->device->kind->put(trainer->device), "get ready");
}

int trainer_close(struct trainer *trainer)
{
    int result;

    trainer_records_close(trainer);
    result = trainer_close_log(trainer);
    if (trainer_ddp_close(trainer) < 0)
        result = -1;
    if (trainer_keep_close(trainer) < 0)
        result = -1;
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
    return trainer->comm->seconds + trainer->times[RECORD_WAIT];
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
    if (comm_reduce(trainer->comm, sums, 2, DIST_SUM) < 0)
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

/* Step `step` of the epoch: all of it. */
static int trainer_step(struct trainer *trainer, int64_t step)
{
    const int64_t world = trainer->comm->world, interval = trainer->options->checkpoint_interval;
    const int64_t all = (int64_t)trainer->train.count;
    const bool due = report_is_due(&trainer->report, step) ||
                     records_is_due(trainer->records.to, trainer->progress.step + 1);

    trainer->lr = trainer_rate(trainer);
    if (trainer_gradients(trainer, step) < 0 || trainer_ddp_finish(trainer) < 0 ||
        trainer_update(trainer) < 0 || trainer_records_step(trainer) < 0)
        return -1;
    trainer->pending++;
    /* The last batch of an epoch is padded with samples that were seen before. */
    trainer->progress.samples += trainer->taken * world;
    trainer->progress.samples = trainer->progress.samples < all ? trainer->progress.samples : all;
    if ((due || trainer->pending == DEVICE_AHEAD) && trainer_take_losses(trainer) < 0)
        return -1;
    report_step(&trainer->report, step, trainer->loss);
    return interval > 0 && trainer->progress.step % interval == 0 ? trainer_keep(trainer) : 0;
}

/* An epoch: all its steps, or until --max-steps. Begins where the one before or a checkpoint ended.
 */
static int trainer_epoch(struct trainer *trainer, struct report_result *result)
{
    const int64_t global = trainer_step_samples(trainer) * trainer->comm->world;
    const int64_t all = (int64_t)trainer->train.count;
    const double began = comm_now(), communicated = trainer_communicated(trainer);
    const struct dist_sampler_state state = {.seed = (uint64_t)trainer->options->seed,
                                             .epoch = (uint64_t)trainer->progress.epoch,
                                             .seen = (uint64_t)trainer->progress.samples};
    int64_t step = 0, steps;

    *result = (struct report_result){0};
    if (dist_sampler_restore(trainer->sampler, &state) < 0)
        return failure_dist("the epoch");
    steps = trainer_steps(trainer);
    trainer->losses = 0.0;
    trainer->records.since = comm_now();
    report_epoch(&trainer->report, trainer->progress.epoch + 1, steps, global, all,
                 trainer->progress.samples);
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
    if (trainer->progress.samples >= all) {
        trainer->progress.epoch++;
        trainer->progress.samples = 0;
    }
    return 0;
}

/* Tests this rank's samples; sums: loss, correct, samples. */
static int trainer_test_own(struct trainer *trainer, double sums[3])
{
    const size_t world = (size_t)trainer->comm->world;
    struct device *device = trainer->device;
    struct batch *batch = &trainer->batch;

    batch->count = 0;
    for (size_t i = (size_t)trainer->comm->rank; i < trainer->test.count; i += world) {
        struct pass pass;
        struct loss loss;

        batch_add(batch, &trainer->test, i, 0, 0);
        if (batch->count < batch->capacity && i + world < trainer->test.count)
            continue;
        pass = trainer_pass(trainer, batch, false);
        if (device->kind->test(device, &pass, batch, &loss) < 0)
            return -1;
        sums[0] += loss.total;
        sums[1] += (double)loss.correct;
        sums[2] += pass.batch;
        batch->count = 0;
    }
    return 0;
}

/*
 * A test of the whole test set, divided among the ranks, each sample once. A rank that fails says
 * why; the others learn of it by the sum.
 */
static int trainer_test(struct trainer *trainer, struct report_result *result)
{
    const double began = comm_now();
    double sums[3] = {0.0, 0.0, 0.0};
    int tested;

    if (trainer_ddp_sync(trainer) < 0)
        return -1;
    tested = trainer_test_own(trainer, sums);
    sums[0] = tested < 0 ? (double)NAN : sums[0];
    if (comm_reduce(trainer->comm, sums, 3, DIST_SUM) < 0 || tested < 0)
        return -1;
    result->loss = sums[0] / sums[2];
    if (!isfinite(result->loss))
        return failure("the test after step %" PRId64 ": the loss is %f", trainer->progress.step,
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
    return records_test(trainer->records.to, &(struct record_test){.step = trainer->progress.step,
                                                                   .epoch = trainer->progress.epoch,
                                                                   .loss = result->loss,
                                                                   .correct = result->correct,
                                                                   .count = result->count});
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
        result = checkpoint_save(path, trainer->model, trainer->progress.epoch);
    return comm_agree(trainer->comm, result, "save the model");
}

/* Whether --patience has run out. */
static bool trainer_is_enough(const struct trainer *trainer)
{
    const int64_t patience = trainer->options->patience;

    return patience > 0 && trainer->progress.idle >= patience;
}

/*
 * An epoch and its test. The file that is kept knows of the test, unless --max-steps ended the
 * epoch: whoever goes on from there has not made it.
 */
static int trainer_learn(struct trainer *trainer, struct report_result *result)
{
    bool better = false;

    if (trainer_epoch(trainer, result) < 0 || trainer_test(trainer, result) < 0 ||
        trainer_check_hash(trainer) < 0)
        return -1;
    if (trainer->progress.samples == 0) {
        better = trainer->progress.tests++ == 0 || result->loss < trainer->progress.best;
        trainer->progress.best = better ? result->loss : trainer->progress.best;
        trainer->progress.idle = better ? 0 : trainer->progress.idle + 1;
    }
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
        trainer->progress.step = trainer->progress.epoch * trainer_steps(trainer);
    while (!options->evaluate && !trainer_is_enough(trainer) &&
           trainer->progress.epoch < options->epochs && !trainer_is_done(trainer)) {
        if (trainer_learn(trainer, &result) < 0)
            return -1;
        tested = true;
    }
    if (trainer_is_enough(trainer))
        report_enough(&trainer->report, trainer->progress.idle, trainer->progress.best);
    if (!tested && (trainer_test(trainer, &result) < 0 || trainer_check_hash(trainer) < 0))
        return -1;
    if (trainer_keep_check(trainer) < 0 || (options->save_model && trainer_save(trainer, "") < 0) ||
        trainer_measure(trainer, trainer->began, trainer->communicated, &result) < 0)
        return -1;
    records_share(trainer->records.to, result.share);
    report_end(&trainer->report, &result, dist_get_backend(trainer->comm->group),
               trainer->comm->world);
    return trainer_records_end(trainer);
}
