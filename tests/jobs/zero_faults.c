/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * zero_faults CASE: misuses dist_zero on rank 1. Exit 0 if every rank gets the expected status and
 * the group still works.
 *
 *     missing    leaves out a gradient         mismatch   has another count
 *     leaves     destroys it in a step         early      destroys it while other ranks make a step
 *     scarce     create fails at each allocation in turn
 *     killed     is killed in a step           killed-in  is killed while it updates
 *     step       its step function fails       arguments  calls that are refused on all ranks
 *     huge       all ranks have parameters that do not fit any machine's memory
 *     forked     has a child that uses it      slow       reads parameters while other ranks finish
 */
#include <dist/zero.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "faults.h"

enum { PARAMETERS = 4, COUNT = 3000 };

struct job {
    dist_zero *zero;
    bool kills, fails;
    float values[PARAMETERS][COUNT];
};

static struct job job;

/* Subtracts the gradients. */
static int descend(void *arg, const struct dist_zero_slice *slice)
{
    (void)arg;
    if (job.kills && slice->parameter == 2)
        kill(getpid(), SIGKILL);
    for (size_t i = 0; i < slice->count; i++)
        slice->values[i] -= slice->gradients[i];
    return job.fails ? 7 : 0;
}

static struct dist_zero_options options_of(void)
{
    struct dist_zero_options options = DIST_ZERO_OPTIONS_INIT;

    options.step = descend;
    options.state_floats = 1;
    return options;
}

static dist_status create(int count_of_last, const struct dist_zero_options *options)
{
    static const char *const names[PARAMETERS] = {"conv1.weight", "conv1.bias", NULL, "fc.weight"};
    struct dist_zero_parameter parameters[PARAMETERS];

    for (int i = 0; i < PARAMETERS; i++)
        parameters[i] =
            (struct dist_zero_parameter){.name = names[i], .values = job.values[i], .count = COUNT};
    parameters[PARAMETERS - 1].count = (size_t)count_of_last;
    return dist_zero_create(fault_group, parameters, PARAMETERS, options, &job.zero);
}

static void create_well(void)
{
    const struct dist_zero_options options = options_of();

    fault_expect("create", create(COUNT, &options), DIST_OK, NULL);
}

static dist_status ready_all(int left_out)
{
    dist_status status = DIST_OK;

    for (int i = PARAMETERS - 1; i >= 0 && status == DIST_OK; i--)
        if (i != left_out)
            status = dist_zero_ready(job.zero, i);
    return status;
}

static void step(int left_out, dist_status wanted, const char *text)
{
    dist_status status = ready_all(left_out);

    fault_expect("step", status == DIST_OK ? dist_zero_finish(job.zero) : status, wanted, text);
}

static void destroy(void)
{
    fault_expect("destroy", dist_zero_destroy(job.zero), DIST_OK, NULL);
    job.zero = NULL;
}

static void case_missing(void)
{
    create_well();
    step(-1, DIST_OK, NULL);
    if (fault_rank == 1)
        step(2, DIST_ERR_INVALID_ARGUMENT, "no gradient for parameter 2");
    else
        step(-1, DIST_ERR_ABORTED, "rank 1");
    fault_expect("later", dist_zero_finish(job.zero), DIST_ERR_ABORTED, "earlier error");
}

static void case_mismatch(void)
{
    struct dist_zero_options options = options_of();

    fault_expect("create", create(COUNT - (fault_rank == 1), &options), DIST_ERR_MISMATCH,
                 "same list");
    options.max_norm = fault_rank == 1 ? 1.0 : 2.0;
    fault_expect("create", create(COUNT, &options), DIST_ERR_MISMATCH, "options");
    options = options_of();
    options.size = fault_rank == 1 ? 4096 : sizeof(options);
    fault_expect("create", create(COUNT, &options), DIST_ERR_INVALID_ARGUMENT,
                 fault_rank == 1 ? "DIST_ZERO_OPTIONS_INIT" : "rank 1");
}

static void case_leaves(void)
{
    create_well();
    if (fault_rank == 1) {
        fault_expect("ready", dist_zero_ready(job.zero, 3), DIST_OK, NULL);
        destroy();
    } else {
        step(-1, DIST_ERR_ABORTED, "rank 1");
    }
}

/* All other ranks must get the same error, whether a rank detects the mismatch itself or is
 * notified that the group has failed on another rank. */
static void case_early(void)
{
    dist_status status;

    create_well();
    step(-1, DIST_OK, NULL);
    if (fault_rank == 1) {
        destroy();
        return;
    }
    status = ready_all(-1);
    status = status == DIST_OK ? dist_zero_finish(job.zero) : status;
    fault_expect("step", status, DIST_ERR_MISMATCH, "uint8");
}

static void case_killed(void)
{
    create_well();
    step(-1, DIST_OK, NULL);
    if (fault_rank == 1) {
        dist_zero_ready(job.zero, 3);
        kill(getpid(), SIGKILL);
    }
    step(-1, DIST_ERR_PEER_LOST, "rank 1");
}

static void case_killed_in(void)
{
    create_well();
    step(-1, DIST_OK, NULL);
    job.kills = fault_rank == 1;
    step(-1, DIST_ERR_PEER_LOST, "rank 1");
}

static void case_step(void)
{
    create_well();
    job.fails = fault_rank == 1;
    step(-1, DIST_ERR_ABORTED, fault_rank == 1 ? "returned 7" : "rank 1");
}

static void arguments_of_create(void)
{
    struct dist_zero_options options = options_of();

    options.dtype = DIST_FLOAT64;
    fault_expect("float64", create(COUNT, &options), DIST_ERR_UNSUPPORTED, "float32 only");
    options = options_of();
    options.step = NULL;
    fault_expect("step", create(COUNT, &options), DIST_ERR_INVALID_ARGUMENT, "options.step");
    options = options_of();
    options.state_floats = DIST_ZERO_STATE_MAX + 1;
    fault_expect("state", create(COUNT, &options), DIST_ERR_INVALID_ARGUMENT, "state_floats");
    options = options_of();
    options.max_norm = (double)NAN;
    fault_expect("norm", create(COUNT, &options), DIST_ERR_INVALID_ARGUMENT, "max_norm");
    options = options_of();
    fault_expect("empty", create(0, &options), DIST_ERR_INVALID_ARGUMENT, "no elements");
    fault_expect("NULL", create(COUNT, NULL), DIST_ERR_INVALID_ARGUMENT, "DIST_ZERO_OPTIONS_INIT");
    fault_expect("NULL", dist_zero_create(NULL, NULL, 1, &options, &job.zero),
                 DIST_ERR_INVALID_ARGUMENT, "group is NULL");
    fault_expect("NULL", dist_zero_finish(NULL), DIST_ERR_INVALID_ARGUMENT, "zero is NULL");
}

static void case_arguments(void)
{
    float state[COUNT];

    arguments_of_create();
    create_well();
    fault_expect("index", dist_zero_ready(job.zero, PARAMETERS), DIST_ERR_INVALID_ARGUMENT,
                 "no parameter");
    fault_expect("index", dist_zero_ready(job.zero, -1), DIST_ERR_INVALID_ARGUMENT, "no parameter");
    fault_expect("which", dist_zero_gather_state(job.zero, 0, 1, state, 0),
                 DIST_ERR_INVALID_ARGUMENT, "state");
    fault_expect("root", dist_zero_scatter_state(job.zero, 0, 0, state, 99),
                 DIST_ERR_INVALID_ARGUMENT, "no rank 99");
    fault_expect("ready", dist_zero_ready(job.zero, 1), DIST_OK, NULL);
    fault_expect("twice", dist_zero_ready(job.zero, 1), DIST_ERR_INVALID_ARGUMENT, "second time");
    fault_expect("clear", dist_zero_clear_gradients(job.zero), DIST_ERR_INVALID_ARGUMENT,
                 "under way");
    fault_expect("sync", dist_zero_sync_values(job.zero), DIST_ERR_INVALID_ARGUMENT, "under way");
    fault_expect("state", dist_zero_gather_state(job.zero, 0, 0, state, 0),
                 DIST_ERR_INVALID_ARGUMENT, "under way");
    for (int i = 0; i < PARAMETERS; i++)
        if (i != 1)
            fault_expect("ready", dist_zero_ready(job.zero, i), DIST_OK, NULL);
    fault_expect("finish", dist_zero_finish(job.zero), DIST_OK, NULL);
    if (dist_zero_values(job.zero, PARAMETERS) || dist_zero_gradient(NULL, 0))
        fault_count++;
}

/* The error names the cause, not its consequences. */
static void case_huge(void)
{
    const struct dist_zero_options options = options_of();
    const struct dist_zero_parameter parameter = {.count = (size_t)1 << 46};

    fault_expect("huge", dist_zero_create(fault_group, &parameter, 1, &options, &job.zero),
                 DIST_ERR_NO_MEMORY, NULL);
    fault_expect("huge", DIST_ERR_NO_MEMORY, DIST_ERR_NO_MEMORY, "memory");
}

/* The child can read the parameters, and has no effect on the parent. */
static void case_forked(void)
{
    pid_t pid;
    int code = 99;

    create_well();
    dist_zero_gradient(job.zero, 0)[1] = 2.0f;
    step(-1, DIST_OK, NULL);
    pid = fork();
    if (pid == 0) {
        code = dist_zero_values(job.zero, 0)[1] != -2.0f;
        dist_zero_destroy(job.zero);
        _exit(code);
    }
    if (waitpid(pid, &code, 0) != pid || code != 0)
        fault_count++;
    dist_zero_clear_gradients(job.zero);
    step(-1, DIST_OK, NULL);
    fault_count += dist_zero_values(job.zero, 0)[1] != -2.0f;
}

/* A rank that is far ahead changes nothing that this rank still reads. */
static void case_slow(void)
{
    const struct timespec while_others_finish = {.tv_nsec = 20000000};

    create_well();
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < COUNT; i++)
            dist_zero_gradient(job.zero, 2)[i] = 1.0f;
        if (fault_rank == round % 3)
            nanosleep(&while_others_finish, NULL);
        for (int i = 0; i < COUNT; i++)
            fault_count += dist_zero_values(job.zero, 2)[i] != (float)-round;
        step(-1, DIST_OK, NULL);
        for (int i = 0; i < COUNT; i++)
            fault_count += dist_zero_values(job.zero, 2)[i] != (float)(-round - 1);
    }
    fault_expect("nobody reads", dist_barrier(fault_group), DIST_OK, NULL);
    if (fault_rank == 0)
        dist_zero_values(job.zero, 2)[COUNT - 1] = 5.0f;
    fault_expect("sync", dist_zero_sync_values(job.zero), DIST_OK, NULL);
    fault_count += dist_zero_values(job.zero, 2)[COUNT - 1] != 5.0f;
}

static void end(void)
{
    dist_zero_destroy(job.zero);
    job.zero = NULL;
}

static dist_status create_scarce(void)
{
    const struct dist_zero_options options = options_of();

    return create(COUNT, &options);
}

/* dist_zero_create allocates the struct, two arrays, a name for each parameter, and four lists. */
static void case_scarce(void)
{
    fault_scarce(create_scarce, end, 11);
}

int main(int argc, char **argv)
{
    static const struct fault_case cases[] = {{"missing", case_missing},
                                              {"mismatch", case_mismatch},
                                              {"leaves", case_leaves},
                                              {"killed", case_killed},
                                              {"killed-in", case_killed_in},
                                              {"step", case_step},
                                              {"arguments", case_arguments},
                                              {"early", case_early},
                                              {"forked", case_forked},
                                              {"slow", case_slow},
                                              {"huge", case_huge},
                                              {"scarce", case_scarce},
                                              {NULL, NULL}};

    return fault_main(argc, argv, cases, end);
}
