/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * zero [NAME=VALUE]...: trains a model with dist_zero, trains the same model with dist_ddp and the
 * same optimizer on every rank, and compares all parameters after each step. Exit 0 if they agree.
 *
 *     steps=30 bucket=BYTES optimizer=adam|adamw|sgd|nesterov|plain|own accumulate=1 clip=NORM
 *     sum=1 own=1 (gradients in malloc's memory) restore=1 (halfway the state moves to another
 *     dist_zero, with other buckets) beside=1 (another dist_zero of half of the ranks makes steps
 *     too) sharers=N (expected) tolerance=0 (equal bits)
 */
#include <dist/ddp.h>
#include <dist/zero.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddp_model.h"
#include "settings.h"

enum { BESIDE = 5 };

struct settings {
    int steps, accumulate, own, sum, restore, beside, sharers;
    double bucket, clip, tolerance;
    const char *optimizer;
};

static struct settings settings = {.steps = 30, .accumulate = 1, .optimizer = "adam"};

struct job {
    dist_group *group, *half;
    dist_zero *zero, *beside;
    float beside_value;
    dist_ddp *ddp;
    int rank, world;
    struct model model, reference;
    float *state[MODEL_PARAMETERS][DIST_ZERO_STATE_MAX];
    struct dist_zero_options options;
    struct dist_zero_adam adam;
    struct dist_zero_sgd sgd;
};

static int fail(const char *what)
{
    fprintf(stderr, "zero: %s: %s\n", what, dist_last_error());
    return 1;
}

/* A user-defined optimizer: the new value depends on its position, the step and all its state. */
static int own_step(void *arg, const struct dist_zero_slice *slice)
{
    const float rate = *(const double *)arg > 0.0 ? 0.01f : 0.0f;

    for (size_t i = 0; i < slice->count; i++) {
        slice->state[2][i] += slice->gradients[i] + (float)((slice->first + i) % 7) * 1e-4f;
        slice->state[0][i] = slice->state[2][i] / (float)slice->step;
        slice->values[i] -= rate * slice->state[0][i] * (float)(1 + slice->parameter);
    }
    return slice->state_floats != 3;
}

static void choose(struct job *job)
{
    const char *name = settings.optimizer;

    job->adam = (struct dist_zero_adam)DIST_ZERO_ADAM_INIT;
    job->sgd = (struct dist_zero_sgd)DIST_ZERO_SGD_INIT;
    job->options = (struct dist_zero_options)DIST_ZERO_OPTIONS_INIT;
    job->options.step = dist_zero_adam_step;
    job->options.step_arg = &job->adam;
    job->options.state_floats = DIST_ZERO_ADAM_STATE;
    job->adam.decoupled = strcmp(name, "adamw") == 0;
    job->adam.weight_decay = job->sgd.weight_decay = 0.01;
    if (strcmp(name, "own") == 0) {
        job->options.step = own_step;
        job->options.state_floats = 3;
    } else if (strncmp(name, "adam", 4) != 0) {
        job->options.step = dist_zero_sgd_step;
        job->options.step_arg = &job->sgd;
        job->options.state_floats = strcmp(name, "plain") == 0 ? 0 : DIST_ZERO_SGD_STATE;
        job->sgd.momentum = job->options.state_floats ? 0.9 : 0.0;
        job->sgd.nesterov = strcmp(name, "nesterov") == 0;
    }
    job->options.sum = settings.sum;
    job->options.max_norm = settings.clip;
    job->options.first_bucket_bytes = job->options.bucket_bytes = (size_t)settings.bucket;
}

/* Makes a dist_zero of the program's parameters, whose values are in `values`. */
static int make_zero(struct job *job, float *const *values)
{
    struct dist_zero_parameter parameters[MODEL_PARAMETERS];

    for (int i = 0; i < MODEL_PARAMETERS; i++)
        parameters[i] =
            (struct dist_zero_parameter){.name = model_names[i],
                                         .values = values[i],
                                         .count = model_counts[i],
                                         .gradient = settings.own ? job->model.gradients[i] : NULL};
    if (dist_zero_create(job->group, parameters, MODEL_PARAMETERS, &job->options, &job->zero) !=
        DIST_OK)
        return fail("create");
    for (int i = 0; i < MODEL_PARAMETERS; i++)
        job->model.values[i] = dist_zero_values(job->zero, i);
    for (int i = 0; i < MODEL_PARAMETERS && !settings.own; i++)
        job->model.gradients[i] = dist_zero_gradient(job->zero, i);
    return 0;
}

static int make_ddp(struct job *job)
{
    struct dist_ddp_parameter parameters[MODEL_PARAMETERS];
    struct dist_ddp_options options = DIST_DDP_OPTIONS_INIT;

    for (int i = 0; i < MODEL_PARAMETERS; i++) {
        parameters[i] = (struct dist_ddp_parameter){.values = job->reference.values[i],
                                                    .count = model_counts[i]};
        for (int k = 0; k < DIST_ZERO_STATE_MAX; k++)
            job->state[i][k] = calloc(model_counts[i], sizeof(float));
    }
    options.sum = settings.sum;
    if (dist_ddp_create(job->group, parameters, MODEL_PARAMETERS, &options, &job->ddp) != DIST_OK)
        return fail("ddp");
    for (int i = 0; i < MODEL_PARAMETERS; i++)
        job->reference.gradients[i] = dist_ddp_gradient(job->ddp, i);
    return 0;
}

static int make_beside(struct job *job)
{
    const struct dist_zero_parameter parameter = {.count = BESIDE};
    static struct dist_zero_sgd sgd = {.rate = 1.0};
    struct dist_zero_options options = DIST_ZERO_OPTIONS_INIT;

    options.step = dist_zero_sgd_step;
    options.step_arg = &sgd;
    options.sum = true;
    if (dist_split_group(job->group, job->rank % 2, 0, NULL, &job->half) != DIST_OK ||
        dist_zero_create(job->half, &parameter, 1, &options, &job->beside) != DIST_OK)
        return fail("beside");
    return 0;
}

/* Each rank initializes its own model; rank 0's model then replaces it. */
static int start(struct job *job)
{
    struct dist_zero_stats stats = {.size = sizeof(stats)};
    float *values[MODEL_PARAMETERS];
    int result;

    choose(job);
    model_create(&job->model, 1 + (unsigned)job->rank, settings.own);
    model_create(&job->reference, 1, false);
    memcpy(values, job->model.values, sizeof(values));
    result = make_zero(job, values);
    for (int i = 0; i < MODEL_PARAMETERS; i++)
        free(values[i]);
    if (result != 0 || make_ddp(job) != 0 || (settings.beside && make_beside(job) != 0))
        return 1;
    if (dist_zero_get_stats(job->zero, &stats) != DIST_OK)
        return fail("stats");
    if (settings.sharers && stats.sharers != settings.sharers)
        return fprintf(stderr, "zero: %d ranks share the parameters\n", stats.sharers), 1;
    return 0;
}

/* ---- a step ---- */

static void on_ready(void *arg, int index)
{
    struct job *job = arg;

    if (dist_zero_ready(job->zero, index) != DIST_OK)
        exit(fail("ready"));
}

static void on_ddp_ready(void *arg, int index)
{
    struct job *job = arg;

    if (dist_ddp_ready(job->ddp, index) != DIST_OK)
        exit(fail("ddp ready"));
}

static void learn(struct job *job, struct model *model, int step, model_ready_fn ready)
{
    model_zero(model);
    for (int pass = 0; pass < settings.accumulate; pass++)
        model_learn(model, (unsigned)((step * settings.accumulate + pass) * 97 + job->rank),
                    1.0f / (float)settings.accumulate, true,
                    pass + 1 == settings.accumulate ? ready : NULL, job);
}

static int ddp_step(struct job *job, uint64_t step)
{
    if (dist_ddp_finish(job->ddp) != DIST_OK ||
        (settings.clip > 0.0 && dist_ddp_clip(job->ddp, settings.clip, NULL) != DIST_OK))
        return fail("ddp");
    for (int i = 0; i < MODEL_PARAMETERS; i++) {
        const struct dist_zero_slice slice = {.parameter = i,
                                              .count = model_counts[i],
                                              .values = job->reference.values[i],
                                              .gradients = job->reference.gradients[i],
                                              .state = job->state[i],
                                              .state_floats = job->options.state_floats,
                                              .step = step};

        job->options.step(job->options.step_arg, &slice);
    }
    return 0;
}

/* Subtracts the sum of this half's gradients in each step. */
static int beside_step(struct job *job, int step)
{
    for (int r = job->rank % 2; r < job->world; r += 2)
        job->beside_value -= (float)(r + step);
    for (int i = 0; i < BESIDE; i++)
        dist_zero_gradient(job->beside, 0)[i] = (float)(job->rank + step);
    if (dist_zero_ready(job->beside, 0) != DIST_OK || dist_zero_finish(job->beside) != DIST_OK)
        return fail("beside");
    for (int i = 0; i < BESIDE; i++)
        if (dist_zero_values(job->beside, 0)[i] != job->beside_value)
            return fprintf(stderr, "zero: the other one has %g instead of %g\n",
                           (double)dist_zero_values(job->beside, 0)[i], (double)job->beside_value),
                   1;
    return 0;
}

static int compare(const struct job *job, int step)
{
    for (int i = 0; i < MODEL_PARAMETERS; i++)
        for (size_t j = 0; j < model_counts[i]; j++) {
            const double got = (double)job->model.values[i][j];
            const double right = (double)job->reference.values[i][j];

            if (!(fabs(got - right) <= settings.tolerance * (fabs(right) + 1e-2)))
                return fprintf(stderr, "zero: step %d: %s[%zu] is %.9g instead of %.9g\n", step,
                               model_names[i], j, got, right),
                       1;
        }
    return 0;
}

/* ---- a checkpoint ---- */

/* Moves the state through a dist_zero of one rank, which has the whole state. */
static int pass_through_one(struct job *job, float *state, int index, int which, dist_zero *one)
{
    float *copy = malloc(model_counts[index] * sizeof(*copy));
    dist_status status = copy ? DIST_OK : DIST_ERR_NO_MEMORY;

    if (status == DIST_OK)
        status = dist_zero_scatter_state(one, index, which, state, 0);
    if (status == DIST_OK)
        status = dist_zero_gather_state(one, index, which, copy, 0);
    if (status == DIST_OK && memcmp(copy, state, model_counts[index] * sizeof(*copy)) != 0)
        status = DIST_ERR_MISMATCH;
    free(copy);
    (void)job;
    return status == DIST_OK ? 0 : fail("one rank");
}

static int restore(struct job *job)
{
    const int root = job->world - 1;
    const uint64_t steps = dist_zero_get_steps(job->zero);
    float *states[MODEL_PARAMETERS][DIST_ZERO_STATE_MAX], *values[MODEL_PARAMETERS];
    struct dist_zero_parameter parameters[MODEL_PARAMETERS];
    dist_zero *one = NULL;
    dist_group *single = NULL;
    int result = 0;

    for (int i = 0; i < MODEL_PARAMETERS; i++) {
        values[i] = malloc(model_counts[i] * sizeof(float));
        memcpy(values[i], job->model.values[i], model_counts[i] * sizeof(float));
        parameters[i] = (struct dist_zero_parameter){.count = model_counts[i]};
        for (int k = 0; k < job->options.state_floats; k++) {
            states[i][k] = malloc(model_counts[i] * sizeof(float));
            if (dist_zero_gather_state(job->zero, i, k, states[i][k], root) != DIST_OK)
                return fail("gather");
        }
    }
    if (dist_zero_destroy(job->zero) != DIST_OK)
        return fail("destroy");
    job->options.first_bucket_bytes = job->options.bucket_bytes = 5000;
    if (dist_split_group(job->group, job->rank, 0, NULL, &single) != DIST_OK ||
        dist_zero_create(single, parameters, MODEL_PARAMETERS, &job->options, &one) != DIST_OK ||
        make_zero(job, values) != 0)
        return fail("anew");
    for (int i = 0; i < MODEL_PARAMETERS; i++) {
        for (int k = 0; k < job->options.state_floats; k++) {
            if (job->rank == root)
                result |= pass_through_one(job, states[i][k], i, k, one);
            if (dist_zero_scatter_state(job->zero, i, k, states[i][k], root) != DIST_OK)
                return fail("scatter");
            free(states[i][k]);
        }
        free(values[i]);
    }
    if (dist_zero_set_steps(job->zero, steps) != DIST_OK || dist_zero_destroy(one) != DIST_OK ||
        dist_destroy_process_group(single) != DIST_OK)
        return fail("end");
    return result;
}

static int train(struct job *job)
{
    for (int step = 0; step < settings.steps; step++) {
        if (settings.restore && step == settings.steps / 2 && restore(job) != 0)
            return 1;
        learn(job, &job->model, step, on_ready);
        learn(job, &job->reference, step, on_ddp_ready);
        if (settings.beside && beside_step(job, step) != 0)
            return 1;
        if (dist_zero_finish(job->zero) != DIST_OK)
            return fail("finish");
        if (ddp_step(job, (uint64_t)step + 1) != 0 || compare(job, step) != 0)
            return 1;
    }
    return 0;
}

static int end(struct job *job)
{
    int result = 0;

    if (dist_zero_destroy(job->zero) != DIST_OK || dist_zero_destroy(job->beside) != DIST_OK ||
        dist_ddp_destroy(job->ddp) != DIST_OK)
        result = fail("end");
    for (int i = 0; i < MODEL_PARAMETERS; i++) {
        free(job->reference.values[i]);
        if (settings.own)
            free(job->model.gradients[i]);
        for (int k = 0; k < DIST_ZERO_STATE_MAX; k++)
            free(job->state[i][k]);
    }
    return result;
}

static const struct setting names[] = {{.name = "steps", .number = &settings.steps},
                                       {.name = "accumulate", .number = &settings.accumulate},
                                       {.name = "own", .number = &settings.own},
                                       {.name = "sum", .number = &settings.sum},
                                       {.name = "restore", .number = &settings.restore},
                                       {.name = "beside", .number = &settings.beside},
                                       {.name = "sharers", .number = &settings.sharers},
                                       {.name = "bucket", .real = &settings.bucket},
                                       {.name = "clip", .real = &settings.clip},
                                       {.name = "tolerance", .real = &settings.tolerance},
                                       {.name = "optimizer", .text = &settings.optimizer},
                                       {.name = NULL}};

static int run(dist_group *group)
{
    struct job job = {
        .group = group, .rank = dist_get_rank(group), .world = dist_get_world_size(group)};

    return start(&job) != 0 || train(&job) != 0 || end(&job) != 0;
}

int main(int argc, char **argv)
{
    return settings_main(argc, argv, names, run);
}
