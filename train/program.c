/* SPDX-License-Identifier: BSD-3-Clause */
/* A program that trains, with as many processes as were started. */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "device.h"
#include "failure.h"
#include "gemm.h"
#include "options.h"
#include "tools/common/launched.h"
#include "tools/common/output.h"
#include "trainer.h"

enum { PROGRAM_OK, PROGRAM_FAILURE, PROGRAM_USAGE };

/* The one place that prints errors; rank -1: not known. */
static void program_complain(const struct task *task, int rank)
{
    if (rank >= 0)
        fprintf(stderr, "%s: rank %d: %s\n", task->program, rank, failure_text());
    else
        fprintf(stderr, "%s: %s\n", task->program, failure_text());
}

static int program_check_device(const struct options *options)
{
    int number;
    bool cuda;

    return device_parse(options->device, &cuda, &number);
}

/*
 * Everything in the group; it is left whether training went well or not. What ended a training is
 * said before it is closed, where more may go wrong.
 */
static int program_train(const struct options *options, struct comm *comm)
{
    struct trainer trainer = {.options = options};
    int result;

    result = trainer_open(options, comm, &trainer);
    if (result == 0)
        result = trainer_run(&trainer);
    if (result < 0)
        program_complain(options->task, comm->rank);
    if (trainer_close(&trainer) < 0 && result == 0) {
        program_complain(options->task, comm->rank);
        result = -1;
    }
    return result;
}

static int program_close_output(void)
{
    const char *cause = output_failure();

    return cause ? failure("cannot write to standard output: %s", cause) : 0;
}

/* One rank from start to end. rank: what dist_spawn says; -1: the process was not spawned. */
static int program_rank(const struct options *options, int rank)
{
    struct comm comm;
    int result;

    gemm_set_threads((int)options->threads);
    result = comm_open(options, rank >= 0, &comm);
    if (result == COMM_SCHEDULER)
        return PROGRAM_OK;
    if (result < 0) {
        program_complain(options->task, rank >= 0 ? rank : (int)options->rank);
        return PROGRAM_FAILURE;
    }
    rank = comm.rank;
    result = program_train(options, &comm);
    if (comm_close(&comm) < 0 && result == 0) {
        program_complain(options->task, rank);
        result = -1;
    }
    if (program_close_output() < 0 && result == 0) {
        program_complain(options->task, rank);
        result = -1;
    }
    return result < 0 ? PROGRAM_FAILURE : PROGRAM_OK;
}

static int program_spawned(int rank, void *options)
{
    return program_rank(options, rank);
}

static int program_usable_cpus(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

static int program_spawn(struct options *options)
{
    const int ranks = options->world_size > 0 ? (int)options->world_size : program_usable_cpus();
    int code = PROGRAM_FAILURE;

    if (dist_spawn(ranks, program_spawned, options, &code) < 0) {
        failure_dist("cannot start the processes");
        program_complain(options->task, -1);
        return PROGRAM_FAILURE;
    }
    /* A rank that a signal ended could say nothing itself. */
    if (code > 128)
        launched_tell_end(options->task->program, code);
    return code;
}

static int program_run(struct options *options)
{
    switch (options->action) {
    case OPTIONS_HELP:
        options_help(options->task, stdout);
        return output_exit(options->task->program, PROGRAM_OK);
    case OPTIONS_VERSION:
        printf("%s (libdist) %s\n", options->task->program, dist_version());
        return output_exit(options->task->program, PROGRAM_OK);
    case OPTIONS_RUN:
        break;
    }
    if (program_check_device(options) < 0) {
        program_complain(options->task, -1);
        return PROGRAM_FAILURE;
    }
    return options->spawn ? program_spawn(options) : program_rank(options, -1);
}

int program_main(const struct task *task, int argc, char *argv[])
{
    struct options options;
    int code;

    blas_choose(argv);
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit on files fails, and is reported */
    if (options_parse(task, argc, argv, &options) < 0) {
        program_complain(task, -1);
        fprintf(stderr, "Try '%s --help'.\n", task->program);
        return PROGRAM_USAGE;
    }
    code = program_run(&options);
    return code;
}
