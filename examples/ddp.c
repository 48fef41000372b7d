/* SPDX-License-Identifier: BSD-3-Clause */
/* Data-parallel training: a * x + b learns 3 * x - 2 at 1000 points. */
#include <dist/ddp.h>
#include <dist/sampler.h>
#include <stdio.h>

#define BATCH 10 /* points per rank and step */

static float a = 0.5f, b = 0.0f;

/* Adds the gradients of half the squared error at one point. */
static void learn(uint64_t point, float *da, float *db)
{
    const float x = (float)point / 500.0f - 1.0f, error = a * x + b - (3.0f * x - 2.0f);

    *da += error * x / BATCH;
    *db += error / BATCH;
}

/* Runs one step. Returns false at the end of the epoch, which all ranks reach in the same step. */
static bool step(dist_ddp *ddp, dist_sampler *sampler, dist_status *status)
{
    float *da = (float *)dist_ddp_gradient(ddp, 0), *db = (float *)dist_ddp_gradient(ddp, 1);
    uint64_t point, points = 0;

    *da = *db = 0.0f;
    for (; points < BATCH && dist_sampler_next(sampler, &point); points++)
        learn(point, da, db);
    if (points == 0 || (*status = dist_ddp_ready(ddp, 1)) || (*status = dist_ddp_ready(ddp, 0)) ||
        (*status = dist_ddp_finish(ddp)))
        return false;
    a -= 0.5f * *da;
    b -= 0.5f * *db;
    return true;
}

int main(void)
{
    struct dist_ddp_parameter parameters[] = {{"a", &a, 1, NULL, false}, {"b", &b, 1, NULL, false}};
    struct dist_sampler_options options = DIST_SAMPLER_OPTIONS_INIT;
    dist_group *group = NULL;
    dist_sampler *sampler = NULL;
    dist_ddp *ddp = NULL;
    dist_status status = dist_init_process_group(NULL, &group);

    options.count = 1000;
    if (status == DIST_OK && (status = dist_sampler_create(group, &options, &sampler)) == DIST_OK)
        status = dist_ddp_create(group, parameters, 2, NULL, &ddp);
    for (uint64_t epoch = 0; status == DIST_OK && epoch < 10; epoch++)
        for (dist_sampler_set_epoch(sampler, epoch); step(ddp, sampler, &status);)
            continue;
    if (status == DIST_OK)
        printf("rank %d of %d: %.3f * x + %.3f\n", dist_get_rank(group), dist_get_world_size(group),
               (double)a, (double)b);
    else
        fprintf(stderr, "%s\n", dist_last_error());
    dist_ddp_destroy(ddp);
    dist_sampler_destroy(sampler);
    return dist_destroy_process_group(group) != DIST_OK || status != DIST_OK;
}
