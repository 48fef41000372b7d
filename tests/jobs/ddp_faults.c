/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ddp_faults CASE: misuses dist_ddp on rank 1. Exit 0 if every rank gets the expected status and
 * the group still works.
 *
 *     missing    leaves out a gradient         mismatch   has another count
 *     leaves     destroys it in a step         killed     is killed in a step
 *     early      destroys it while the other ranks begin another step
 *     apart      has gradients at other distances in memory
 *     turned     as apart, but in an order in which rank 0's gradients form one piece
 *     hook       its hook fails                arguments  calls that are refused on all ranks
 *     scarce     create fails at each allocation in turn
 *     nan        has a NaN in a gradient: the result has it, and the next step's does not
 */
#include <dist/ddp.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "faults.h"

enum { PARAMETERS = 4, COUNT = 3000 };

struct job {
    dist_ddp *ddp;
    float values[PARAMETERS][COUNT];
};

static struct job job;

static dist_status create(int count_of_last, const struct dist_ddp_options *options)
{
    static const char *const names[PARAMETERS] = {"conv1.weight", "conv1.bias", NULL, "fc.weight"};
    struct dist_ddp_parameter parameters[PARAMETERS];

    for (int i = 0; i < PARAMETERS; i++)
        parameters[i] =
            (struct dist_ddp_parameter){.name = names[i], .values = job.values[i], .count = COUNT};
    parameters[PARAMETERS - 1].count = (size_t)count_of_last;
    return dist_ddp_create(fault_group, parameters, PARAMETERS, options, &job.ddp);
}

static void step(int left_out, dist_status wanted, const char *text)
{
    dist_status status = DIST_OK;

    for (int i = PARAMETERS - 1; i >= 0 && status == DIST_OK; i--)
        if (i != left_out)
            status = dist_ddp_ready(job.ddp, i);
    fault_expect("step", status == DIST_OK ? dist_ddp_finish(job.ddp) : status, wanted, text);
}

static void case_missing(void)
{
    fault_expect("create", create(COUNT, NULL), DIST_OK, NULL);
    step(-1, DIST_OK, NULL);
    if (fault_rank == 1)
        step(2, DIST_ERR_INVALID_ARGUMENT, "no gradient for parameter 2");
    else
        step(-1, DIST_ERR_ABORTED, "rank 1");
    fault_expect("later", dist_ddp_finish(job.ddp), DIST_ERR_ABORTED, "earlier error");
}

static void case_mismatch(void)
{
    fault_expect("create", create(COUNT - (fault_rank == 1), NULL), DIST_ERR_MISMATCH, "same list");
    fault_expect("create",
                 create(COUNT, fault_rank == 1 ? &(struct dist_ddp_options){.size = 4096} : NULL),
                 DIST_ERR_INVALID_ARGUMENT, fault_rank == 1 ? "DIST_DDP_OPTIONS_INIT" : "rank 1");
}

static void case_leaves(void)
{
    fault_expect("create", create(COUNT, NULL), DIST_OK, NULL);
    if (fault_rank == 1) {
        fault_expect("ready", dist_ddp_ready(job.ddp, 3), DIST_OK, NULL);
        fault_expect("destroy", dist_ddp_destroy(job.ddp), DIST_OK, NULL);
        job.ddp = NULL;
    } else {
        step(-1, DIST_ERR_ABORTED, "rank 1");
    }
}

/* All other ranks must get the same error, whether a rank detects the mismatch itself or is
 * notified that the group has failed on another rank. */
static void case_early(void)
{
    dist_status status;

    fault_expect("create", create(COUNT, NULL), DIST_OK, NULL);
    step(-1, DIST_OK, NULL);
    if (fault_rank == 1) {
        fault_expect("destroy", dist_ddp_destroy(job.ddp), DIST_OK, NULL);
        job.ddp = NULL;
    } else {
        status = dist_ddp_ready(job.ddp, 0);
        for (int i = 1; i < PARAMETERS && status == DIST_OK; i++)
            status = dist_ddp_ready(job.ddp, i);
        status = status == DIST_OK ? dist_ddp_finish(job.ddp) : status;
        fault_expect("step", status, DIST_ERR_MISMATCH, "uint8");
    }
}

/* Gradients are in one array on some ranks and in an array with gaps on the other ranks; the sums
 * are right. */
static void case_apart(void)
{
    static float memory[PARAMETERS * (COUNT + 8)];
    const size_t apart = COUNT + (fault_rank == 1 ? 8 : 0);
    struct dist_ddp_parameter parameters[PARAMETERS];

    for (int i = 0; i < PARAMETERS; i++)
        parameters[i] =
            (struct dist_ddp_parameter){.count = COUNT, .gradient = memory + (size_t)i * apart};
    fault_expect("create", dist_ddp_create(fault_group, parameters, PARAMETERS, NULL, &job.ddp),
                 DIST_OK, NULL);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < PARAMETERS; i++)
            memory[(size_t)i * apart + 9] = (float)(fault_rank * (i + 1));
        step(-1, DIST_OK, NULL);
        for (int i = 0; i < PARAMETERS; i++)
            fault_count += fabsf(memory[(size_t)i * apart + 9] - (float)(i + 1)) > 1e-5f;
    }
    fault_expect("destroy", dist_ddp_destroy(job.ddp), DIST_OK, NULL);
    if (fault_rank == 1)
        parameters[2].gradient = NULL;
    fault_expect("own", dist_ddp_create(fault_group, parameters, PARAMETERS, NULL, &job.ddp),
                 DIST_ERR_MISMATCH, "same list");
    job.ddp = NULL;
}

/*
 * Places each gradient at a multiple of (length + gap): alone, or directly after another one. No
 * two gradients that follow each other in the list are adjacent, so the first step has a piece per
 * gradient on all ranks. In the second step, which uses rank 0's order, 0 and 2 form one piece, but
 * in the opposite order on rank 1.
 */
static void case_turned(void)
{
    static float memory[PARAMETERS * 2 * COUNT];
    static const size_t starts[][PARAMETERS] = {{0, 3, 1, 5}, {1, 3, 0, 5}, {0, 3, 5, 7}};
    static const int came[PARAMETERS] = {0, 2, 1, 3};
    struct dist_ddp_parameter parameters[PARAMETERS];
    float *at[PARAMETERS];

    for (int i = 0; i < PARAMETERS; i++) {
        at[i] = memory + starts[fault_rank % 3][i] * COUNT;
        parameters[i] = (struct dist_ddp_parameter){.count = COUNT, .gradient = at[i]};
    }
    fault_expect("create", dist_ddp_create(fault_group, parameters, PARAMETERS, NULL, &job.ddp),
                 DIST_OK, NULL);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < PARAMETERS; i++)
            at[i][9] = (float)(fault_rank * (i + 1));
        for (int i = 0; i < PARAMETERS; i++)
            fault_expect("ready", dist_ddp_ready(job.ddp, came[i]), DIST_OK, NULL);
        fault_expect("finish", dist_ddp_finish(job.ddp), DIST_OK, NULL);
        for (int i = 0; i < PARAMETERS; i++)
            fault_count += fabsf(at[i][9] - (float)(i + 1)) > 1e-5f;
    }
}

static void case_killed(void)
{
    fault_expect("create", create(COUNT, NULL), DIST_OK, NULL);
    if (fault_rank == 1) {
        dist_ddp_ready(job.ddp, 3);
        kill(getpid(), SIGKILL);
    }
    step(-1, DIST_ERR_PEER_LOST, "rank 1");
}

static dist_status bad_hook(void *arg, dist_group *group, const struct dist_ddp_bucket *bucket,
                            int stage, dist_work **work_p)
{
    (void)arg, (void)stage;
    if (fault_rank == 1)
        return DIST_ERR_UNSUPPORTED;
    return dist_all_reduce_coalesced_async(group, bucket->pieces, bucket->counts,
                                           bucket->piece_count, bucket->dtype, DIST_SUM, work_p);
}

static void case_hook(void)
{
    struct dist_ddp_options options = DIST_DDP_OPTIONS_INIT;

    options.hook = bad_hook;
    fault_expect("create", create(COUNT, &options), DIST_OK, NULL);
    step(-1, fault_rank == 1 ? DIST_ERR_UNSUPPORTED : DIST_ERR_ABORTED,
         fault_rank == 1 ? NULL : "rank 1");
}

static void case_arguments(void)
{
    struct dist_ddp_options options = DIST_DDP_OPTIONS_INIT;

    options.dtype = DIST_INT32;
    fault_expect("int32", create(COUNT, &options), DIST_ERR_INVALID_ARGUMENT, "floating-point");
    options = (struct dist_ddp_options)DIST_DDP_OPTIONS_INIT;
    options.wire = DIST_DDP_WIRE_INT8;
    options.dtype = DIST_FLOAT64;
    fault_expect("wire", create(COUNT, &options), DIST_ERR_INVALID_ARGUMENT, "float32 only");
    fault_expect("empty", create(0, NULL), DIST_ERR_INVALID_ARGUMENT, "no elements");
    fault_expect("NULL", dist_ddp_create(NULL, NULL, 1, NULL, &job.ddp), DIST_ERR_INVALID_ARGUMENT,
                 "group is NULL");
    fault_expect("NULL", dist_ddp_finish(NULL), DIST_ERR_INVALID_ARGUMENT, "ddp is NULL");
    fault_expect("create", create(COUNT, NULL), DIST_OK, NULL);
    fault_expect("index", dist_ddp_ready(job.ddp, PARAMETERS), DIST_ERR_INVALID_ARGUMENT,
                 "no gradient");
    fault_expect("index", dist_ddp_ready(job.ddp, -1), DIST_ERR_INVALID_ARGUMENT, "no gradient");
    fault_expect("ready", dist_ddp_ready(job.ddp, 1), DIST_OK, NULL);
    fault_expect("twice", dist_ddp_ready(job.ddp, 1), DIST_ERR_INVALID_ARGUMENT, "second time");
    fault_expect("sync", dist_ddp_set_sync(job.ddp, false), DIST_ERR_INVALID_ARGUMENT, "under way");
    fault_expect("zero", dist_ddp_zero_gradients(job.ddp), DIST_ERR_INVALID_ARGUMENT, "under way");
    fault_expect("join", dist_ddp_join(job.ddp, NULL, NULL), DIST_ERR_INVALID_ARGUMENT, "uneven");
    for (int i = 0; i < PARAMETERS; i++)
        if (i != 1)
            fault_expect("ready", dist_ddp_ready(job.ddp, i), DIST_OK, NULL);
    fault_expect("finish", dist_ddp_finish(job.ddp), DIST_OK, NULL);
    fault_expect("clip", dist_ddp_clip(job.ddp, NAN, NULL), DIST_ERR_INVALID_ARGUMENT, "max_norm");
}

static void nan_wire(dist_ddp_wire wire)
{
    struct dist_ddp_options options = DIST_DDP_OPTIONS_INIT;
    float *gradient;

    options.wire = wire;
    fault_expect("create", create(COUNT, &options), DIST_OK, NULL);
    gradient = dist_ddp_gradient(job.ddp, 2);
    for (int round = 0; round < 3; round++) {
        dist_ddp_zero_gradients(job.ddp);
        gradient[1] = 2.0f;
        gradient[5] = round == 1 && fault_rank == 1 ? NAN : 1.0f;
        step(-1, DIST_OK, NULL);
        if (fabsf(gradient[1] - 2.0f) > 0.02f || isnan(gradient[5]) != (round == 1) ||
            gradient[COUNT - 1] != 0.0f) {
            fprintf(stderr, "rank %d: wire %d, round %d: %g %g\n", fault_rank, (int)wire, round,
                    (double)gradient[1], (double)gradient[5]);
            fault_count++;
        }
    }
    fault_expect("destroy", dist_ddp_destroy(job.ddp), DIST_OK, NULL);
    job.ddp = NULL;
}

static void case_nan(void)
{
    for (int wire = DIST_DDP_WIRE_SAME; wire <= DIST_DDP_WIRE_INT8; wire++)
        nan_wire((dist_ddp_wire)wire);
}

static void end(void)
{
    dist_ddp_destroy(job.ddp);
    job.ddp = NULL;
}

static dist_status create_scarce(void)
{
    return create(COUNT, NULL);
}

/* dist_ddp_create allocates the struct, its arrays, and a name for each parameter. */
static void case_scarce(void)
{
    fault_scarce(create_scarce, end, 9);
}

int main(int argc, char **argv)
{
    static const struct fault_case cases[] = {
        {"missing", case_missing}, {"mismatch", case_mismatch}, {"leaves", case_leaves},
        {"killed", case_killed},   {"hook", case_hook},         {"arguments", case_arguments},
        {"nan", case_nan},         {"early", case_early},       {"apart", case_apart},
        {"turned", case_turned},   {"scarce", case_scarce},     {NULL, NULL}};

    return fault_main(argc, argv, cases, end);
}
