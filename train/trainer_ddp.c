/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's training: gradients become the mean over the ranks while they are computed. */
#include <string.h>

#include <dist/ddp.h>
#include <dist/zero.h>

#include "failure.h"
#include "optimizer.h"
#include "trainer.h"

/* ---- --zero: each rank updates its share of the parameters, for all ---- */

static int zero_step(void *arg, const struct dist_zero_slice *from)
{
    struct trainer *trainer = arg;
    const struct optimizer_slice slice = {.count = from->count,
                                          .weights = from->values,
                                          .gradients = from->gradients,
                                          .state = from->state};

    trainer->device->kind->slice(trainer->device, (float)trainer->lr, &slice);
    return 0;
}

/* What a file had of the optimizer, which rank 0 has read, or what goes there. */
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
                return failure_dist("the optimizer's state");
        }
    return 0;
}

/* The model's weights are the dist_zero's from now on, and on one machine all ranks' together. */
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
    if (dist_zero_get_stats(trainer->zero, &stats) == DIST_OK)
        report_shares(&trainer->report, stats.state_bytes,
                      (size_t)states * sizeof(float) * model->parameters, stats.sharers);
    return trainer->resumed ? zero_state(trainer, false) : 0;
}

/* Waiting for other ranks is what communication costs; the rest is the optimizer's. */
static int zero_finish(struct trainer *trainer)
{
    struct dist_zero_stats before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
    dist_status status;

    dist_zero_get_stats(trainer->zero, &before);
    status = dist_zero_finish(trainer->zero);
    dist_zero_get_stats(trainer->zero, &after);
    trainer->times[RECORD_WAIT] += after.waited - before.waited;
    trainer->times[RECORD_UPDATE] += after.worked - before.worked;
    return status < 0 ? failure_dist("averaging the gradients and updating the parameters") : 0;
}

int trainer_zero_keep(struct trainer *trainer)
{
    return trainer->zero ? zero_state(trainer, true) : 0;
}

/* ---- the mean of gradients ---- */

static dist_ddp_wire ddp_wire(const char *name)
{
    if (strcmp(name, "fp16") == 0)
        return DIST_DDP_WIRE_FLOAT16;
    if (strcmp(name, "bf16") == 0)
        return DIST_DDP_WIRE_BFLOAT16;
    return strcmp(name, "int8") == 0 ? DIST_DDP_WIRE_INT8 : DIST_DDP_WIRE_SAME;
}

int trainer_ddp_open(struct trainer *trainer)
{
    struct dist_ddp_options options = DIST_DDP_OPTIONS_INIT;
    struct dist_ddp_parameter parameters[MODEL_MAX_TENSORS + 2];
    const struct model *model = trainer->model;
    float *sums = trainer->device->sums;
    int count = 0;

    if (trainer->options->zero)
        return zero_open(trainer);
    /*
     * What the ranks average. With --reproducible the rounded sums are there only at the end, and
     * are one call; behind them, what the grid wants of all ranks.
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
    options.wire = ddp_wire(trainer->options->wire);
    options.bucket_bytes = (size_t)(trainer->options->bucket_mb * (1 << 20));
    if (options.bucket_bytes > 0 && options.bucket_bytes < 1 << 20)
        options.first_bucket_bytes = options.bucket_bytes;
    if (dist_ddp_create(trainer->comm->group, parameters, count, &options, &trainer->ddp) < 0)
        return failure_dist("receiving the parameters of rank 0");
    if (trainer->device->streamed && dist_ddp_set_stream(trainer->ddp, trainer->device->stream) < 0)
        return failure_dist("the stream of the GPU");
    return 0;
}

int trainer_ddp_close(struct trainer *trainer)
{
    dist_ddp *ddp = trainer->ddp;
    dist_zero *zero = trainer->zero;
    const dist_status status = zero ? dist_zero_destroy(zero) : dist_ddp_destroy(ddp);

    trainer->ddp = NULL;
    trainer->zero = NULL;
    return status < 0 ? failure_dist("the end of the training") : 0;
}

/* A dist_zero knows of parameters alone. */
int trainer_ddp_sync(struct trainer *trainer)
{
    const struct model *model = trainer->model;

    if (model->buffer_count == 0)
        return 0;
    if (!trainer->ddp)
        return comm_broadcast(trainer->comm, model->buffers, model->buffer_count);
    return dist_ddp_sync_buffers(trainer->ddp) < 0 ? failure_dist("the running means of rank 0")
                                                   : 0;
}

/* The first failure says why; trainer_ddp_finish passes it on. */
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

/* A pass begins on the CPU. */
static void ddp_begins(void *arg, bool backward)
{
    struct trainer *trainer = arg;

    if (trainer->records.pass != RECORD_PARTS)
        trainer_spent(trainer, trainer->records.pass, trainer->records.mark);
    trainer->records.mark = comm_now();
    trainer->records.pass = backward ? RECORD_BACKWARD : RECORD_FORWARD;
}

struct model_listener trainer_ddp_listener(struct trainer *trainer, bool last)
{
    const bool listens = last && (trainer->ddp || trainer->zero) && !trainer->options->reproducible;

    return (struct model_listener){listens ? ddp_ready : NULL, trainer, ddp_begins};
}

int trainer_ddp_finish(struct trainer *trainer)
{
    const double start = comm_now(), most = trainer->options->clip;
    dist_status status;

    if (trainer->options->reproducible) {
        ddp_ready(trainer, 1);
        ddp_ready(trainer, 0);
    }
    if (trainer->failed)
        return -1;
    if (trainer->zero)
        return zero_finish(trainer);
    status = dist_ddp_finish(trainer->ddp);
    trainer_spent(trainer, RECORD_WAIT, start);
    if (status < 0)
        return failure_dist("averaging the gradients");
    if (most <= 0.0)
        return 0;
    /* What stands behind the sums with --reproducible is no gradient, and the ddp would count it.
     */
    if (trainer->options->reproducible)
        optimizer_clip(most, trainer->device->sums, trainer->model->parameters);
    else if (dist_ddp_clip(trainer->ddp, most, NULL) < 0)
        return failure_dist("--clip");
    return 0;
}
