/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * train_mnist and train_cifar10: this file is compiled once for each, with TRAIN_TASK defined as
 * its task. The program runs one rank of a training, or all ranks of this machine.
 */
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "failure.h"
#include "gemm.h"
#include "options.h"
#include "tools/common/launched.h"
#include "tools/common/output.h"
#include "trainer.h"

enum { EXIT_OK, EXIT_FAILED, EXIT_USAGE };

static const struct task *const task = &TRAIN_TASK;

/* Prints failure_text(); the only function that prints errors. rank -1: unknown. */
static void complain(int rank)
{
    if (rank >= 0)
        fprintf(stderr, "%s: rank %d: %s\n", task->program, rank, failure_text());
    else
        fprintf(stderr, "%s: %s\n", task->program, failure_text());
}

/*
 * Joins the group. If dist_spawn started this process, `spawned` is true, and rank and world size
 * of the options are ignored. Returns JOIN_SCHEDULER if this process was the job's scheduler and
 * the job has ended successfully.
 */
enum { JOIN_SCHEDULER = 1 };
static int join(const struct options *options, bool spawned, struct comm *comm)
{
    const char *host = options->addr ? options->addr : "127.0.0.1";
    const bool bracket = strchr(host, ':') && host[0] != '[';
    struct dist_options group = DIST_OPTIONS_INIT;
    dist_status status;
    char url[512];
    bool cuda;

    if (options->addr && strlen(options->addr) > 255)
        return failure("--addr: longer than 255 characters");
    group.backend = options->dist_backend;
    group.device = -1; /* no GPU, unless --device names one */
    device_parse(options->device, &cuda, &group.device);
    group.init_method = options->dist_url; /* NULL: the library chooses */
    if (options->addr || options->port >= 0) {
        snprintf(url, sizeof(url), "tcp://%s%s%s:%d", bracket ? "[" : "", host, bracket ? "]" : "",
                 options->port < 0 ? 29500 : (int)options->port);
        group.init_method = url;
    }
    if (!spawned) {
        group.rank = (int)options->rank;
        group.world_size = (int)options->world_size;
        group.local_rank = (int)options->local_rank;
    }
    if (options->timeout > 0)
        group.timeout_ms =
            options->timeout > INT_MAX / 1000 ? INT_MAX : (int)options->timeout * 1000;
    *comm = (struct comm){.group = NULL};
    status = dist_init_process_group(&group, &comm->group);
    if (status == DIST_ERR_SCHEDULER)
        return JOIN_SCHEDULER;
    if (status != DIST_OK)
        return failure_dist("cannot join the process group");
    comm->rank = dist_get_rank(comm->group);
    comm->world = dist_get_world_size(comm->group);
    comm->local_rank = dist_get_local_rank(comm->group);
    return 0;
}

/* Runs one rank. rank: as passed by dist_spawn; -1: the process was not spawned. */
static int run_rank(int rank, void *arg)
{
    const struct options *options = arg;
    struct trainer trainer = {.options = options};
    struct comm comm;
    const char *lost;
    int result;

    result = join(options, rank >= 0, &comm);
    if (result == JOIN_SCHEDULER)
        return EXIT_OK;
    if (result < 0) {
        complain(rank >= 0 ? rank : (int)options->rank);
        return EXIT_FAILED;
    }
    /* Report why the training failed before closing it, because closing may fail as well. */
    result = trainer_run(options, &comm, &trainer);
    if (result < 0)
        complain(comm.rank);
    if (trainer_close(&trainer) < 0 && result == 0) {
        complain(comm.rank);
        result = -1;
    }
    /* Leave the group even if the training failed. */
    if (dist_destroy_process_group(comm.group) < 0 && result == 0) {
        result = failure_dist("cannot leave the process group");
        complain(comm.rank);
    }
    lost = output_failure();
    if (lost && result == 0) {
        result = failure("cannot write to standard output: %s", lost);
        complain(comm.rank);
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
    /* A rank that was killed by a signal cannot have reported it. */
    if (code > 128)
        launched_report_end(task->program, code);
    return code;
}

int main(int argc, char *argv[])
{
    struct options options;
    bool cuda;
    int number;

    blas_choose(argv);
    signal(
        SIGXFSZ,
        SIG_IGN); /* writing beyond the file size limit fails with an error instead of a signal */
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
