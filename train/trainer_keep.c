/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's training: keeping all of it in a file, and going on from there. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "failure.h"
#include "train/files/checkpoint.h"
#include "trainer.h"

/* What the file says besides the weights. */
static struct checkpoint_rest keep_rest(const struct trainer *trainer)
{
    return (struct checkpoint_rest){
        .epoch = trainer->epoch,
        .samples = trainer->samples,
        .step = trainer->step,
        .optimizer = trainer->options->optimizer,
        .state = trainer->kept,
        .count = trainer->device->state_count,
    };
}

/* Takes over what the file said. */
static int keep_set(struct trainer *trainer, const struct checkpoint_rest *rest)
{
    const char *path = trainer->options->checkpoint;

    if ((uint64_t)rest->samples > trainer->train.count)
        return failure("%s: %" PRId64 " samples of an epoch were seen, but there are %zu: is it of "
                       "other --data?",
                       path, rest->samples, trainer->train.count);
    trainer->epoch = rest->epoch;
    trainer->samples = rest->samples;
    trainer->step = rest->step;
    trainer->resumed = true;
    printf("=> going on from '%s': %" PRId64 " epochs and %" PRId64 " samples, %" PRId64 " steps\n",
           path, rest->epoch, rest->samples, rest->step);
    return 0;
}

int trainer_keep_open(struct trainer *trainer)
{
    const char *path = trainer->options->checkpoint;
    struct checkpoint_rest rest;

    if (!path)
        return 0;
    trainer->kept = calloc(trainer->device->state_count, sizeof(*trainer->kept));
    if (!trainer->kept)
        return failure("%s: out of memory", path);
    if (trainer->comm->rank != 0 || access(path, F_OK) != 0)
        return 0;
    rest = keep_rest(trainer);
    return checkpoint_load_all(path, trainer->model, &rest) < 0 ? -1 : keep_set(trainer, &rest);
}

int trainer_keep_share(struct trainer *trainer)
{
    const bool tells = trainer->comm->rank == 0;
    double far[4] = {trainer->resumed, (double)trainer->epoch, (double)trainer->samples,
                     (double)trainer->step};

    if (!trainer->options->checkpoint)
        return 0;
    if (!tells)
        memset(far, 0, sizeof(far));
    if (comm_sum(trainer->comm, far, 4) < 0)
        return -1;
    trainer->resumed = far[0] != 0.0;
    if (!trainer->resumed)
        return 0;
    trainer->epoch = (int64_t)far[1];
    trainer->samples = (int64_t)far[2];
    trainer->step = (int64_t)far[3];
    if (comm_broadcast(trainer->comm, trainer->kept, trainer->device->state_count) < 0)
        return -1;
    return trainer->device->kind->state(trainer->device, false, trainer->kept);
}

int trainer_keep(struct trainer *trainer)
{
    const struct device_kind *kind = trainer->device->kind;
    struct checkpoint_rest rest;
    int result = 0;

    if (!trainer->options->checkpoint)
        return 0;
    if (trainer->comm->rank == 0) {
        rest = keep_rest(trainer);
        result = kind->get(trainer->device);
        if (result == 0)
            result = kind->state(trainer->device, true, trainer->kept);
        if (result == 0)
            result = checkpoint_save_all(trainer->options->checkpoint, trainer->model, &rest);
    }
    return comm_agree(trainer->comm, result, "keep the training");
}
