/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's training with --zero: each rank updates its share of the parameters, for all. */
#include <dist/zero.h>

#include "train/failure.h"
#include "trainer.h"

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

static struct dist_zero_options zero_options(struct trainer *trainer)
{
    struct dist_zero_options options = DIST_ZERO_OPTIONS_INIT;

    options.bucket_bytes = (size_t)(trainer->options->bucket_mb * (1 << 20));
    if (options.bucket_bytes > 0 && options.bucket_bytes < 1 << 20)
        options.first_bucket_bytes = options.bucket_bytes;
    options.max_norm = trainer->options->clip;
    options.state_floats = trainer->device->optimizer_states;
    options.step = zero_step;
    options.step_arg = trainer;
    return options;
}

/* What a file had of the optimizer, which rank 0 has read, or what goes there. */
static int zero_state(struct trainer *trainer, bool save)
{
    const struct model *model = trainer->model;

    for (int k = 0; k < trainer->device->optimizer_states; k++)
        for (int i = 0; i < model->tensor_count; i++) {
            float *state = trainer->kept + (size_t)k * model->parameters + model->tensors[i].offset;
            const dist_status status = save
                                           ? dist_zero_gather_state(trainer->zero, i, k, state, 0)
                                           : dist_zero_scatter_state(trainer->zero, i, k, state, 0);

            if (status < 0)
                return failure_dist("the optimizer's state");
        }
    return 0;
}

static void zero_report(const struct trainer *trainer)
{
    const size_t state = (size_t)trainer->device->optimizer_states * sizeof(float);
    struct dist_zero_stats stats = {.size = sizeof(stats)};

    if (dist_zero_get_stats(trainer->zero, &stats) == DIST_OK)
        report_shares(&trainer->report, stats.state_bytes, state * trainer->model->parameters,
                      stats.sharers);
}

int trainer_zero_open(struct trainer *trainer)
{
    struct model *model = trainer->model;
    const struct dist_zero_options options = zero_options(trainer);
    struct dist_zero_parameter parameters[MODEL_MAX_TENSORS];

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
    zero_report(trainer);
    return trainer->resumed ? zero_state(trainer, false) : 0;
}

int trainer_zero_close(struct trainer *trainer)
{
    dist_zero *zero = trainer->zero;

    trainer->zero = NULL;
    return dist_zero_destroy(zero) < 0 ? failure_dist("the end of the training") : 0;
}

/* Waiting for other ranks is what communication costs; the rest is the optimizer's. */
int trainer_zero_finish(struct trainer *trainer)
{
    struct dist_zero_stats before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
    dist_status status;

    dist_zero_get_stats(trainer->zero, &before);
    status = dist_zero_finish(trainer->zero);
    dist_zero_get_stats(trainer->zero, &after);
    trainer->times.exposed += after.waited - before.waited;
    trainer->times.update += after.worked - before.worked;
    trainer->norm = after.norm;
    return status < 0 ? failure_dist("averaging the gradients and updating the parameters") : 0;
}

int trainer_zero_keep(struct trainer *trainer)
{
    return trainer->zero ? zero_state(trainer, true) : 0;
}
