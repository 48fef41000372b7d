/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's training: making it ready. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "train/failure.h"
#include "train/gemm.h"
#include "trainer.h"

enum { TRAINER_TEST_MOST = 64 }; /* samples of a test pass: more only need memory */

/* Odd, so that one value that differs gives another hash. */
#define TRAINER_MIX 0x9e3779b97f4a7c15u

static int trainer_open_data(struct trainer *trainer)
{
    const struct options *options = trainer->options;

    if (!options->data) {
        dataset_draw(options->task->data, (size_t)options->train_samples, true,
                     (uint64_t)options->seed, &trainer->train);
        dataset_draw(options->task->data, (size_t)options->test_samples, false,
                     (uint64_t)options->seed, &trainer->test);
        return 0;
    }
    if (dataset_read(options->task->data, options->data, true, &trainer->train) < 0)
        return -1;
    return dataset_read(options->task->data, options->data, false, &trainer->test);
}

/* This rank's part of a global batch: at least one sample. */
static int64_t trainer_part(const struct trainer *trainer, int64_t batch)
{
    return batch > trainer->comm->world ? batch / trainer->comm->world : 1;
}

int64_t trainer_step_samples(const struct trainer *trainer)
{
    return trainer->local_batch * trainer->options->accumulate;
}

static void trainer_divide_batch(struct trainer *trainer)
{
    const int64_t global = trainer->options->batch_size;
    const int world = trainer->comm->world;

    trainer->local_batch = trainer_part(trainer, global);
    trainer->micro_batches = 1;
    if (trainer->options->reproducible)
        trainer->micro_batches =
            TRAINER_MICRO_BATCHES % world == 0 ? TRAINER_MICRO_BATCHES / world : 1;
    if (trainer->comm->rank == 0 && trainer->local_batch * world != global)
        fprintf(stderr,
                "%s: warning: a global batch of %" PRId64 " cannot be divided among %d "
                "ranks: using %" PRId64 " (%" PRId64 " a rank)\n",
                trainer->options->task->program, global, world, trainer->local_batch * world,
                trainer->local_batch);
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

static int trainer_open_sampler(struct trainer *trainer)
{
    struct dist_sampler_options options = DIST_SAMPLER_OPTIONS_INIT;

    options.count = trainer->train.count;
    options.seed = (uint64_t)trainer->options->seed;
    options.rank = trainer->comm->rank;
    options.world_size = trainer->comm->world;
    return dist_sampler_create(NULL, &options, &trainer->sampler) < 0 ? failure_dist("the sampler")
                                                                      : 0;
}

static int trainer_open_model(struct trainer *trainer)
{
    const struct options *options = trainer->options;
    int64_t capacity = trainer_part(trainer, options->test_batch_size);

    capacity = capacity < TRAINER_TEST_MOST ? capacity : TRAINER_TEST_MOST;
    capacity = capacity > trainer->local_batch ? capacity : trainer->local_batch;
    if (trainer_open_device(trainer, (int)capacity) < 0 ||
        batch_create(options->task->data, (int)capacity, &trainer->batch) < 0 ||
        loader_create(&trainer->train, (int)options->workers, (int)trainer->local_batch,
                      &trainer->loader) < 0)
        return -1;
    return trainer_open_sampler(trainer);
}

static int trainer_open_start(struct trainer *trainer)
{
    model_init(trainer->model, (uint64_t)trainer->options->seed);
    return trainer_keep_open(trainer);
}

static int trainer_open_log(struct trainer *trainer)
{
    const char *path = trainer->options->loss_log;

    if (!path || trainer->comm->rank != 0)
        return 0;
    trainer->loss_log = fopen(path, trainer->resumed ? "a" : "w");
    if (!trainer->loss_log)
        return failure("--loss-log %s: %s", path, strerror(errno));
    setvbuf(trainer->loss_log, NULL, _IOLBF, BUFSIZ);
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
    trainer->options = options;
    trainer->comm = comm;
    report_open(&trainer->report, comm->rank == 0, options->log_interval);
    trainer_divide_batch(trainer);
    if (trainer_open_data(trainer) < 0 || trainer_open_model(trainer) < 0)
        return -1;
    if (trainer_open_start(trainer) < 0 || trainer_open_log(trainer) < 0)
        return -1;
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

    while (options_common(options, &row, &value))
        hash = (hash ^ value) * TRAINER_MIX;
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
        trainer->epoch = options->start_epoch;
    if (comm_compare(comm, (uint64_t)trainer->epoch, "epoch to start from") < 0)
        return -1;
    if (trainer_ddp_open(trainer) < 0 || trainer_records_start(trainer) < 0)
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
