/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's training: making it ready. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "train/device/blas.h"
#include "train/files/checkpoint.h"
#include "trainer.h"

enum { TRAINER_TEST_MOST = 64 }; /* samples of a test pass: more only need memory */

static int trainer_open_data(struct trainer *trainer)
{
    const struct options *options = trainer->options;

    if (!options->data) {
        dataset_draw((size_t)options->train_samples, true, (uint64_t)options->seed,
                     &trainer->train);
        dataset_draw((size_t)options->test_samples, false, (uint64_t)options->seed, &trainer->test);
        return 0;
    }
    if (dataset_read(options->data, true, &trainer->train) < 0)
        return -1;
    return dataset_read(options->data, false, &trainer->test);
}

/* This rank's part of a global batch: at least one sample. */
static int64_t trainer_part(const struct trainer *trainer, int64_t batch)
{
    return batch > trainer->comm->world ? batch / trainer->comm->world : 1;
}

static void trainer_divide_batch(struct trainer *trainer)
{
    const int64_t global = trainer->options->batch_size;
    const int world = trainer->comm->world;

    trainer->local_batch = trainer_part(trainer, global);
    trainer->micro_batches = TRAINER_MICRO_BATCHES % world == 0 ? TRAINER_MICRO_BATCHES / world : 1;
    if (trainer->comm->rank == 0 && trainer->local_batch * world != global)
        fprintf(stderr,
                "train_mnist: warning: a global batch of %" PRId64 " cannot be divided among %d "
                "ranks: using %" PRId64 " (%" PRId64 " a rank)\n",
                global, world, trainer->local_batch * world, trainer->local_batch);
}

/* Of a model that computes on a GPU the host has nothing but the weights. */
static int trainer_open_device(struct trainer *trainer, int capacity)
{
    const struct options *options = trainer->options;
    const bool host = strcmp(options->device, "cpu") == 0;
    struct device_setup setup = {
        .group = trainer->comm->group,
        .capacity = capacity,
        .micro_batches = trainer->micro_batches,
        .world = trainer->comm->world,
        .optimizer = options->optimizer,
        .momentum = (float)options->momentum,
        .weight_decay = (float)options->weight_decay,
        .local_rank = trainer->comm->local_rank,
    };

    if (model_create(options->arch, host ? capacity : 1, host ? setup.group : NULL,
                     &trainer->model) < 0)
        return -1;
    setup.model = trainer->model;
    if (device_open(options->device, &setup, &trainer->device) < 0)
        return -1;
    comm_order(trainer->comm, trainer->device->streamed, trainer->device->stream);
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
        batch_create((int)capacity, &trainer->batch) < 0)
        return -1;
    return trainer_open_sampler(trainer);
}

static int trainer_open_start(struct trainer *trainer)
{
    const struct options *options = trainer->options;

    model_init(trainer->model, (uint64_t)options->seed);
    if (options->resume && checkpoint_load(options->resume, trainer->model, &trainer->epoch) < 0)
        return -1;
    if (options->resume && trainer->report.active)
        printf("=> loaded checkpoint '%s' (epoch %" PRId64 ")\n", options->resume, trainer->epoch);
    if (options->start_epoch >= 0)
        trainer->epoch = options->start_epoch;
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

int trainer_prepare(const struct options *options, struct comm *comm, struct trainer *trainer)
{
    trainer->options = options;
    trainer->comm = comm;
    report_open(&trainer->report, comm->rank == 0, options->log_interval);
    trainer_divide_batch(trainer);
    if (trainer_open_data(trainer) < 0 || trainer_open_model(trainer) < 0)
        return -1;
    return trainer_open_start(trainer) < 0 ? -1 : trainer_open_log(trainer);
}

int trainer_open(const struct options *options, struct comm *comm, struct trainer *trainer)
{
    const int result = trainer_prepare(options, comm, trainer);

    if (comm_agree(comm, result, "get ready") < 0 ||
        comm_compare(comm, trainer->train.count, "number of training samples") < 0 ||
        comm_compare(comm, trainer->test.count, "number of test samples") < 0 ||
        comm_compare(comm, trainer->model->parameters, "number of parameters") < 0 ||
        trainer_keep_share(trainer) < 0 ||
        comm_compare(comm, (uint64_t)trainer->epoch, "epoch to start from") < 0)
        return -1;
    if (comm_broadcast(comm, trainer->model->weights, trainer->model->parameters) < 0)
        return -1;
    return comm_agree(comm, trainer->device->kind->put(trainer->device), "get ready");
}

int trainer_close(struct trainer *trainer)
{
    int result = 0;

    if (trainer->loss_log && fclose(trainer->loss_log) != 0)
        result = failure("--loss-log %s: %s", trainer->options->loss_log, strerror(errno));
    trainer->loss_log = NULL;
    comm_order(trainer->comm, false, NULL);
    free(trainer->kept);
    device_close(trainer->device);
    model_destroy(trainer->model);
    batch_destroy(&trainer->batch);
    dist_sampler_destroy(trainer->sampler);
    dataset_destroy(&trainer->train);
    dataset_destroy(&trainer->test);
    return result;
}
