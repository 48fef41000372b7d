/* SPDX-License-Identifier: BSD-3-Clause */
/* train_mnist: trains a digit classifier with as many processes as were started. */
#include <sched.h>
#include <signal.h>
#include <stdio.h>

#include "failure.h"
#include "options.h"
#include "train/device/blas.h"
#include "train/device/device.h"
#include "train/model/gemm.h"
#include "trainer.h"

enum { MAIN_OK, MAIN_FAILURE, MAIN_USAGE };

/* The one place that prints errors; rank -1: not known. */
static void main_complain(int rank)
{
    if (rank >= 0)
        fprintf(stderr, "train_mnist: rank %d: %s\n", rank, failure_text());
    else
        fprintf(stderr, "train_mnist: %s\n", failure_text());
}

static int main_check_device(const struct options *options)
{
    int number;
    bool cuda;

    return device_parse(options->device, &cuda, &number);
}

/* Everything in the group; it is left whether training went well or not. */
static int main_train(const struct options *options, struct comm *comm)
{
    struct trainer trainer = {.options = options};
    int result;

    result = trainer_open(options, comm, &trainer);
    if (result == 0)
        result = trainer_run(&trainer);
    if (trainer_close(&trainer) < 0)
        result = -1;
    if (result < 0)
        main_complain(comm->rank);
    return result;
}

/* One rank from start to end. rank: what dist_spawn says; -1: the process was not spawned. */
static int main_rank(const struct options *options, int rank)
{
    struct comm comm;
    int result;

    gemm_set_threads((int)options->threads);
    result = comm_open(options, rank >= 0, &comm);
    if (result == COMM_SCHEDULER)
        return MAIN_OK;
    if (result < 0) {
        main_complain(rank >= 0 ? rank : (int)options->rank);
        return MAIN_FAILURE;
    }
    rank = comm.rank;
    result = main_train(options, &comm);
    if (comm_close(&comm) < 0 && result == 0) {
        main_complain(rank);
        result = -1;
    }
    if (fflush(stdout) != 0 && result == 0) {
        failure("cannot write to standard output");
        main_complain(rank);
        result = -1;
    }
    return result < 0 ? MAIN_FAILURE : MAIN_OK;
}

static int main_spawned(int rank, void *options)
{
    return main_rank(options, rank);
}

static int main_usable_cpus(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

static int main_spawn(struct options *options)
{
    const int ranks = options->world_size > 0 ? (int)options->world_size : main_usable_cpus();
    int code = MAIN_FAILURE;

    if (dist_spawn(ranks, main_spawned, options, &code) < 0) {
        failure_dist("cannot start the processes");
        main_complain(-1);
        return MAIN_FAILURE;
    }
    return code;
}

static int main_run(struct options *options)
{
    switch (options->action) {
    case OPTIONS_HELP:
        options_help(stdout);
        return fflush(stdout) == 0 ? MAIN_OK : MAIN_FAILURE;
    case OPTIONS_VERSION:
        printf("train_mnist (libdist) %s\n", dist_version());
        return fflush(stdout) == 0 ? MAIN_OK : MAIN_FAILURE;
    case OPTIONS_RUN:
        break;
    }
    if (main_check_device(options) < 0) {
        main_complain(-1);
        return MAIN_FAILURE;
    }
    return options->spawn ? main_spawn(options) : main_rank(options, -1);
}

int main(int argc, char *argv[])
{
    struct options options;
    int code;

    blas_choose(argv);
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit on files fails, and is reported */
    if (options_parse(argc, argv, &options) < 0) {
        main_complain(-1);
        fputs("Try 'train_mnist --help'.\n", stderr);
        return MAIN_USAGE;
    }
    code = main_run(&options);
    return code;
}
