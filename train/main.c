/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * train_mnist and train_cifar10: this file is compiled for each, with TRAIN_TASK as its task.
 * Trains with as many processes as were started.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>

#include "failure.h"
#include "gemm.h"
#include "options.h"
#include "tools/common/launched.h"
#include "tools/common/output.h"
#include "trainer.h"

enum { EXIT_OK, EXIT_FAILED, EXIT_USAGE };

static const struct task *const task = &TRAIN_TASK;

/* The one place that prints errors; rank -1: not known. */
static void complain(int rank)
{
    if (rank >= 0)
        fprintf(stderr, "%s: rank %d: %s\n", task->program, rank, failure_text());
    else
        fprintf(stderr, "%s: %s\n", task->program, failure_text());
}

/*
 * Everything in the group; it is left whether training went well or not. What ended a training is
 * said before it is closed, where more may go wrong.
 */
static int train(const struct options *options, struct comm *comm)
{
    struct trainer trainer = {.options = options};
    int result = trainer_open(options, comm, &trainer);

    if (result == 0)
        result = trainer_run(&trainer);
    if (result < 0)
        complain(comm->rank);
    if (trainer_close(&trainer) < 0 && result == 0) {
        complain(comm->rank);
        result = -1;
    }
    return result;
}

/* One rank from start to end. rank: what dist_spawn says; -1: the process was not spawned. */
static int run_rank(int rank, void *arg)
{
    const struct options *options = arg;
    struct comm comm;
    const char *lost;
    int result;

    gemm_set_threads((int)options->threads);
    result = comm_open(options, rank >= 0, &comm);
    if (result == COMM_SCHEDULER)
        return EXIT_OK;
    if (result < 0) {
        complain(rank >= 0 ? rank : (int)options->rank);
        return EXIT_FAILED;
    }
    rank = comm.rank;
    result = train(options, &comm);
    if (comm_close(&comm) < 0 && result == 0) {
        complain(rank);
        result = -1;
    }
    lost = output_failure();
    if (lost && result == 0) {
        result = failure("cannot write to standard output: %s", lost);
        complain(rank);
    }
    return result < 0 ? EXIT_FAILED : EXIT_OK;
}

static int spawn(struct options *options)
{
    int ranks = (int)options->world_size, code = EXIT_FAILED;
    cpu_set_t set;

    if (ranks <= 0)
        ranks = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    if (dist_spawn(ranks, run_rank, options, &code) < 0) {
        failure_dist("cannot start the processes");
        complain(-1);
        return EXIT_FAILED;
    }
    /* A rank that a signal ended could say nothing itself. */
    if (code > 128)
        launched_tell_end(task->program, code);
    return code;
}

int main(int argc, char *argv[])
{
    struct options options;
    bool cuda;
    int number;

    blas_choose(argv);
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit on files fails, and is reported */
    if (options_parse(task, argc, argv, &options) < 0) {
        complain(-1);
        fprintf(stderr, "Try '%s --help'.\n", task->program);
        return EXIT_USAGE;
    }
    if (options.action == OPTIONS_HELP)
        options_help(task, stdout);
    else if (options.action == OPTIONS_VERSION)
        printf("%s (libdist) %s\n", task->program, dist_version());
    if (options.action != OPTIONS_RUN)
        return output_exit(task->program, EXIT_OK);
    if (device_parse(options.device, &cuda, &number) < 0) {
        complain(-1);
        return EXIT_FAILED;
    }
    return options.spawn ? spawn(&options) : run_rank(-1, &options);
}
