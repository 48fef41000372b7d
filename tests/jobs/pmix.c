/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pmix BACKEND...: joins a group of each backend in turn, sums, and leaves, all in one process.
 * These words may replace a backend: "fork": a child of the rank exits, which must not finalize the
 * rank's PMIx; "spawn": the rank starts ranks of its own; "absent": only rank 0 joins; "late":
 * waits a second, also after a failure. Prints when each is over. Exit 0 if all is right.
 */
#include <dist/dist.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int sum_up(const char *backend)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_group *group;
    int32_t one = 1, sum = 0;
    int ranks;

    options.backend = backend;
    if (dist_init_process_group(&options, &group) != DIST_OK) {
        fprintf(stderr, "%s: %s\n", backend, dist_last_error());
        return 1;
    }
    ranks = dist_get_world_size(group);
    if (dist_all_reduce(group, &one, &sum, 1, DIST_INT32, DIST_SUM) != DIST_OK || sum != ranks) {
        fprintf(stderr, "%s: a sum of %d ranks is %d\n", backend, ranks, (int)sum);
        return 1;
    }
    if (dist_get_rank(group) == 0)
        printf("%s: %d ranks\n", backend, ranks);
    return dist_destroy_process_group(group) != DIST_OK;
}

static int child_exits(void)
{
    pid_t child = fork();
    int status;

    if (child == 0)
        exit(0);
    return child < 0 || waitpid(child, &status, 0) != child || status != 0;
}

static int spawned(int rank, void *arg)
{
    (void)rank;
    return sum_up(arg);
}

/* Sleeps; the launcher kills these ranks after rank 0 has failed. */
static int stay_away(void)
{
    const char *rank = getenv("PMIX_RANK");

    if (!rank || strcmp(rank, "0") != 0)
        sleep(60);
    return 0;
}

static int do_one(const char *what)
{
    static char gloo[] = "gloo";
    int code;

    if (strcmp(what, "fork") == 0)
        return child_exits();
    if (strcmp(what, "absent") == 0)
        return stay_away();
    if (strcmp(what, "late") == 0)
        return sleep(1) != 0;
    if (strcmp(what, "spawn") == 0)
        return dist_spawn(2, spawned, gloo, &code) != DIST_OK || code != 0;
    return sum_up(what);
}

int main(int argc, char **argv)
{
    int failed = 0;

    for (int i = 1; i < argc; i++) {
        if (failed && strcmp(argv[i], "late") != 0)
            break;
        if (do_one(argv[i]) != 0)
            failed = 1;
        fprintf(stderr, "after %s\n", argv[i]);
    }
    return failed;
}
