/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ddp [NAME=VALUE]...: trains a model with dist_ddp, trains the same model in each process alone on
 * the samples of all ranks, and compares the losses. Exit 0 if they agree within the tolerance.
 *
 *     steps=100 bucket=BYTES accumulate=1 wire=same|float16|bfloat16|int8|hook uneven=1 unused=1
 *     clip=NORM own=1 (gradients in malloc's memory) forward=1 (ready in the order of the forward
 *     pass) tolerance=1e-4
 */
#include <dist/ddp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddp_model.h"
#include "settings.h"

#define BATCH 2 /* samples per rank and pass */
#define RATE 0.02f

struct settings {
    int steps, accumulate, uneven, unused, own, forward;
    double bucket, clip, tolerance;
    const char *wire;
};

static struct settings settings = {
    .steps = 100, .accumulate = 1, .tolerance = 1e-4, .wire = "same"};

struct job {
    dist_group *group;
    dist_ddp *ddp;
    int rank, world, step;
    struct model model, reference;
};

static int fail(const char *what)
{
    fprintf(stderr, "ddp: %s: %s\n", what, dist_last_error());
    return 1;
}

static int steps_of(int rank)
{
    return settings.uneven ? settings.steps / 2 + rank * 7 % settings.steps / 2 : settings.steps;
}

static bool has_side(int rank, int step)
{
    return !settings.unused || (step % 4 < 2 && (step + rank) % 3 == 0);
}

static unsigned sample_of(int rank, int step, int i)
{
    return (unsigned)((step * BATCH + i) * 97 + rank);
}

/* In the last sample of a pass, passes ready gradients to dist_ddp. */
static void on_ready(void *arg, int index)
{
    struct job *job = arg;

    if (!settings.forward && dist_ddp_ready(job->ddp, index) != DIST_OK)
        exit(fail("ready"));
}

/* A user-defined hook: sums, then divides by the number of ranks. */
static dist_status mean_hook(void *arg, dist_group *group, const struct dist_ddp_bucket *bucket,
                             int stage, dist_work **work_p)
{
    const int world = *(const int *)arg;

    if (stage == 0)
        return dist_all_reduce_coalesced_async(group, bucket->pieces, bucket->counts,
                                               bucket->piece_count, bucket->dtype, DIST_SUM,
                                               work_p);
    for (int i = 0; i < bucket->piece_count; i++)
        for (size_t j = 0; j < bucket->counts[i]; j++)
            ((float *)bucket->pieces[i])[j] /= (float)world;
    return DIST_OK;
}

static void set_wire(struct dist_ddp_options *options, struct job *job)
{
    static const char *const names[] = {"same", "float16", "bfloat16", "int8"};

    if (strcmp(settings.wire, "hook") == 0) {
        options->hook = mean_hook;
        options->hook_arg = &job->world;
    }
    for (int i = 0; i < 4; i++)
        if (strcmp(settings.wire, names[i]) == 0)
            options->wire = (dist_ddp_wire)i;
}

/* Starts from rank 0's parameters on all ranks, although each rank initializes its own. */
static int start(struct job *job)
{
    struct dist_ddp_parameter parameters[MODEL_PARAMETERS];
    struct dist_ddp_options options = DIST_DDP_OPTIONS_INIT;

    model_create(&job->model, 1 + (unsigned)job->rank, settings.own);
    model_create(&job->reference, 1, true);
    for (int i = 0; i < MODEL_PARAMETERS; i++)
        parameters[i] = (struct dist_ddp_parameter){.name = model_names[i],
                                                    .values = job->model.values[i],
                                                    .count = model_counts[i],
                                                    .gradient = job->model.gradients[i]};
    options.first_bucket_bytes = options.bucket_bytes = (size_t)settings.bucket;
    options.find_unused = settings.unused;
    options.uneven = settings.uneven;
    set_wire(&options, job);
    if (dist_ddp_create(job->group, parameters, MODEL_PARAMETERS, &options, &job->ddp) != DIST_OK)
        return fail("create");
    for (int i = 0; i < MODEL_PARAMETERS; i++)
        job->model.gradients[i] = dist_ddp_gradient(job->ddp, i);
    return 0;
}

/* Trains one step in this process on the samples of all ranks. Returns the loss of rank `rank`. */
static double reference_step(struct job *job, int step, int rank, int *active_p)
{
    const float share = 1.0f / (float)(job->world * BATCH * settings.accumulate);
    double loss = 0.0;

    *active_p = 0;
    model_zero(&job->reference);
    for (int r = 0; r < job->world; r++) {
        if (step >= steps_of(r))
            continue;
        ++*active_p;
        for (int pass = 0; pass < settings.accumulate; pass++)
            for (int i = 0; i < BATCH; i++) {
                double one =
                    model_learn(&job->reference, sample_of(r, step * settings.accumulate + pass, i),
                                share, has_side(r, step), NULL, NULL);

                loss += r == rank ? one : 0.0;
            }
    }
    return loss;
}

/* Trains one step on this rank's samples; stores the loss in *loss_p. */
static int my_step(struct job *job, int step, double *loss_p)
{
    const float share = 1.0f / (float)(BATCH * settings.accumulate);
    const bool side = has_side(job->rank, step);

    *loss_p = 0.0;
    if (dist_ddp_zero_gradients(job->ddp) != DIST_OK)
        return fail("zero");
    for (int pass = 0; pass < settings.accumulate; pass++) {
        if (dist_ddp_set_sync(job->ddp, pass == settings.accumulate - 1) != DIST_OK)
            return fail("set_sync");
        for (int i = 0; i < BATCH; i++)
            *loss_p +=
                model_learn(&job->model, sample_of(job->rank, step * settings.accumulate + pass, i),
                            share, side, i == BATCH - 1 ? on_ready : NULL, job);
        for (int i = 0; settings.forward && i < MODEL_PARAMETERS; i++)
            if ((i != MODEL_SIDE || side) && dist_ddp_ready(job->ddp, i) != DIST_OK)
                return fail("ready");
        if (dist_ddp_finish(job->ddp) != DIST_OK)
            return fail("finish");
    }
    return 0;
}

static double norm_of(const struct model *model)
{
    double sum = 0.0;

    for (int i = 0; i < MODEL_PARAMETERS; i++)
        for (size_t j = 0; j < model_counts[i]; j++)
            sum += (double)model->gradients[i][j] * (double)model->gradients[i][j];
    return sqrt(sum);
}

static bool is_near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance * (fabs(a) + fabs(b) + 1e-3);
}

static int clip(struct job *job)
{
    const double norm = norm_of(&job->reference);
    double got;

    if (settings.clip <= 0.0)
        return 0;
    if (dist_ddp_clip(job->ddp, settings.clip, &got) != DIST_OK)
        return fail("clip");
    if (!is_near(got, norm, settings.tolerance))
        return fprintf(stderr, "ddp: the norm is %.9g instead of %.9g\n", got, norm), 1;
    for (int i = 0; norm > settings.clip && i < MODEL_PARAMETERS; i++)
        for (size_t j = 0; j < model_counts[i]; j++)
            job->reference.gradients[i][j] *= (float)(settings.clip / (norm + 1e-6));
    return 0;
}

/* Checks the side parameter's gradient: zero unless some rank used it (`is`). */
static bool side_is(const struct job *job, bool is)
{
    const float *side = dist_ddp_gradient(job->ddp, MODEL_SIDE);

    for (size_t j = 0; !is && j < model_counts[MODEL_SIDE]; j++)
        if (side[j] != 0)
            return false;
    return dist_ddp_is_used(job->ddp, MODEL_SIDE) == is;
}

/* Updates both models in the same way. */
static int update(void *arg)
{
    struct job *job = arg;
    bool used = false;
    int active;

    reference_step(job, job->step, job->rank, &active);
    if (active == 0)
        return fprintf(stderr, "ddp: there is no step %d\n", job->step), 1;
    for (int r = 0; r < job->world; r++)
        used |= job->step < steps_of(r) && has_side(r, job->step);
    if (dist_ddp_active(job->ddp) != active || !side_is(job, used))
        return fprintf(stderr,
                       "ddp: step %d: %d active instead of %d, used is not %d, or it is not zero\n",
                       job->step, dist_ddp_active(job->ddp), active, used),
               1;
    if (clip(job) != 0)
        return 1;
    model_update(&job->model, RATE);
    model_update(&job->reference, RATE);
    job->step++;
    return 0;
}

/* Checks that all ranks have bitwise equal parameters. */
static int compare_ranks(struct job *job)
{
    for (int i = 0; i < MODEL_PARAMETERS; i++) {
        const size_t bytes = model_counts[i] * sizeof(float);
        void *other = malloc(bytes);
        bool same;

        if (!other)
            return 1;
        memcpy(other, job->model.values[i], bytes);
        if (dist_broadcast(job->group, other, bytes, DIST_UINT8, 0) != DIST_OK)
            return fail("broadcast");
        same = memcmp(other, job->model.values[i], bytes) == 0;
        free(other);
        if (!same)
            return fprintf(stderr, "ddp: %s differs from rank 0's\n", model_names[i]), 1;
    }
    return 0;
}

static int train(struct job *job)
{
    double loss, right;
    int active;

    while (job->step < steps_of(job->rank)) {
        right = reference_step(job, job->step, job->rank, &active);
        if (my_step(job, job->step, &loss) != 0)
            return 1;
        if (!is_near(loss, right, settings.tolerance))
            return fprintf(stderr, "ddp: step %d: the loss is %.9g instead of %.9g\n", job->step,
                           loss, right),
                   1;
        if (update(job) != 0)
            return 1;
    }
    if (settings.uneven && dist_ddp_join(job->ddp, update, job) != DIST_OK)
        return fail("join");
    return compare_ranks(job);
}

static const struct setting names[] = {{.name = "steps", .number = &settings.steps},
                                       {.name = "accumulate", .number = &settings.accumulate},
                                       {.name = "uneven", .number = &settings.uneven},
                                       {.name = "unused", .number = &settings.unused},
                                       {.name = "own", .number = &settings.own},
                                       {.name = "forward", .number = &settings.forward},
                                       {.name = "bucket", .real = &settings.bucket},
                                       {.name = "clip", .real = &settings.clip},
                                       {.name = "tolerance", .real = &settings.tolerance},
                                       {.name = "wire", .text = &settings.wire},
                                       {.name = NULL}};

static int run(dist_group *group)
{
    struct job job = {
        .group = group, .rank = dist_get_rank(group), .world = dist_get_world_size(group)};
    int result = start(&job);

    if (result == 0)
        result = train(&job);
    if (dist_ddp_destroy(job.ddp) != DIST_OK && result == 0)
        result = fail("destroy");
    model_destroy(&job.model, settings.own);
    model_destroy(&job.reference, true);
    return result;
}

int main(int argc, char **argv)
{
    return settings_main(argc, argv, names, run);
}
