/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * deaths BACKEND CALL FIRST SECOND GAP [HOW]: two ranks are killed (SIGKILL), the second one GAP
 * milliseconds after the first. Rank 0 serves the job's store, so that after its death no store can
 * report the other death. The surviving ranks use a group of all ranks except 0.
 *
 * Exits with 0 if each survivor's call ends with DIST_ERR_PEER_LOST and an error that names the
 * first victim that is in the group (with GAP 0: any victim). Prints when each rank got its error.
 * In call `chain` each rank receives from the previous rank, so only one rank waits for the victim.
 *
 * HOW, instead of a second death:
 *   cold     as above, but the group has not been used before
 *   abort    the second rank aborts the group (dist_abort) and stays alive for a while
 *   differ   its call differs from the call of the other ranks, and it stays alive
 */
#include <dist/dist.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kills.h"

#define TIMEOUT_MS 20000 /* longer than any rank needs to learn of a death */
#define LONG (1 << 20)   /* elements of a long call */
#define MAX_RANKS 16

#define LIVES_MS 3000 /* how long a rank that has failed stays alive */

static float in[LONG], out[LONG];
static int first, second, gap_ms;
static const char *how = "kill";

typedef dist_status (*call_fn)(dist_group *group, int victim);

static dist_status call_short(dist_group *group, int victim)
{
    (void)victim;
    return dist_all_reduce(group, in, out, 64, DIST_FLOAT32, DIST_SUM);
}

static dist_status call_middle(dist_group *group, int victim)
{
    (void)victim;
    return dist_all_reduce(group, in, out, 1 << 14, DIST_FLOAT32, DIST_SUM);
}

static dist_status call_long(dist_group *group, int victim)
{
    (void)victim;
    return dist_all_reduce(group, in, out, LONG, DIST_FLOAT32, DIST_SUM);
}

static dist_status call_all_to_all(dist_group *group, int victim)
{
    (void)victim;
    return dist_all_to_all(group, in, out, 512, DIST_FLOAT32);
}

static dist_status call_all_gather(dist_group *group, int victim)
{
    (void)victim;
    return dist_all_gather(group, in, out, 512, DIST_FLOAT32);
}

static dist_status call_broadcast(dist_group *group, int victim)
{
    return dist_broadcast(group, in, 512, DIST_FLOAT32, victim);
}

/* The victim only receives, so no rank waits for its data. */
static dist_status call_scatter(dist_group *group, int victim)
{
    const int root = victim ? 0 : 1;

    return dist_scatter(group, in, out, 1 << 14, DIST_FLOAT32, root);
}

static dist_status call_reduce(dist_group *group, int victim)
{
    return dist_reduce(group, in, out, 512, DIST_FLOAT32, DIST_SUM, victim);
}

static dist_status call_barrier(dist_group *group, int victim)
{
    (void)victim;
    return dist_barrier(group);
}

static dist_status call_recv(dist_group *group, int victim)
{
    return dist_recv(group, out, 8, DIST_FLOAT32, victim, 1, NULL);
}

static dist_status call_send(dist_group *group, int victim)
{
    return dist_send(group, in, LONG, DIST_FLOAT32, victim, 1);
}

static dist_status call_chain(dist_group *group, int victim)
{
    const int ranks = dist_get_world_size(group), rank = dist_get_rank(group);

    (void)victim;
    return dist_recv(group, out, 8, DIST_FLOAT32, (rank + ranks - 1) % ranks, 1, NULL);
}

static dist_status call_async(dist_group *group, int victim)
{
    dist_work *work;
    dist_status status = dist_all_reduce_async(group, in, out, 64, DIST_FLOAT32, DIST_SUM, &work);

    (void)victim;
    return status == DIST_OK ? dist_wait(work) : status;
}

static dist_status call_test(dist_group *group, int victim)
{
    dist_work *work;
    bool done = false;
    dist_status status = dist_all_reduce_async(group, in, out, 64, DIST_FLOAT32, DIST_SUM, &work);

    (void)victim;
    while (status == DIST_OK && !done) {
        status = dist_test(work, &done);
        usleep(100);
    }
    return status == DIST_OK ? dist_wait(work) : status;
}

static const struct {
    const char *name;
    call_fn call;
} calls[] = {
    {"short", call_short},
    {"middle", call_middle},
    {"long", call_long},
    {"all_to_all", call_all_to_all},
    {"all_gather", call_all_gather},
    {"broadcast", call_broadcast},
    {"scatter", call_scatter},
    {"reduce", call_reduce},
    {"barrier", call_barrier},
    {"recv", call_recv},
    {"send", call_send},
    {"chain", call_chain},
    {"async", call_async},
    {"test", call_test},
};

static call_fn call_of(const char *name)
{
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        if (strcmp(calls[i].name, name) == 0)
            return calls[i].call;
    }
    fprintf(stderr, "no call %s\n", name);
    exit(2);
}

static bool is(const char *name)
{
    return strcmp(how, name) == 0;
}

static void sleep_ms(long ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

    nanosleep(&time, NULL);
}

static bool names(const char *text, int victim)
{
    char name[32];
    const int length = snprintf(name, sizeof(name), "world rank %d", victim);
    const char *at = strstr(text, name);

    return at && (at[length] < '0' || at[length] > '9');
}

/* Returns 0 if the error is the right one. */
static int check_error(int rank, double began, dist_status status)
{
    const char *text = dist_last_error();
    const int blamed = first ? first : second;

    printf("knew %d %.6f %.6f %s: %s\n", rank, began, now(), dist_status_string(status), text);
    if (is("abort"))
        return status != DIST_ERR_ABORTED || !names(text, second);
    if (is("differ"))
        return status != DIST_ERR_MISMATCH && !strstr(text, "failed in this group");
    if (status != DIST_ERR_PEER_LOST)
        return 1;
    return !names(text, blamed) && (gap_ms || !names(text, second));
}

static dist_status make_group(dist_group *world, dist_group **group_p)
{
    int ranks[MAX_RANKS], size = dist_get_world_size(world);

    for (int r = 1; r < size && r < MAX_RANKS; r++)
        ranks[r - 1] = r;
    return dist_new_group(world, ranks, size - 1, NULL, group_p);
}

/* The second victim fails but stays alive. */
static int fail_alone(dist_group *group)
{
    if (is("abort"))
        dist_abort(group);
    else
        dist_all_reduce(group, in, out, 32, DIST_FLOAT32, DIST_SUM);
    dist_barrier(group); /* detects that the group has failed and notifies the other ranks */
    sleep_ms(LIVES_MS);
    return 0;
}

static int run_rank(const char *backend, call_fn call)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_group *world = NULL, *group = NULL;
    const int victim = (first ? first : second) - 1; /* rank in the group */
    dist_status status;
    double began;
    int rank;

    options.backend = backend;
    options.timeout_ms = TIMEOUT_MS;
    status = dist_init_process_group(&options, &world);
    if (status == DIST_OK)
        status = make_group(world, &group);
    for (int i = is("cold") ? 3 : 0; i < 3 && status == DIST_OK && group; i++)
        status = call_short(group, victim);
    if (status == DIST_OK)
        status = dist_barrier(world);
    rank = world ? dist_get_rank(world) : -1;
    if (status != DIST_OK) {
        printf("rank %d: %s\n", rank, dist_last_error());
        return 3;
    }
    sleep_ms(100);
    if (rank == second)
        sleep_ms(gap_ms);
    if (rank == second && (is("abort") || is("differ")))
        return fail_alone(group);
    if (rank == first || rank == second)
        kill(getpid(), SIGKILL);
    if (rank == 0) { /* serves the store until the other ranks have exited */
        dist_destroy_process_group(world);
        return 0;
    }
    do {
        began = now();
        status = call(group, victim);
    } while (status == DIST_OK);
    return check_error(rank, began, status);
}

/* Hides the signal that killed a rank from the launcher. */
int main(int argc, char **argv)
{
    int status;
    pid_t child;

    if (argc != 6 && argc != 7)
        return 2;
    if (argc == 7)
        how = argv[6];
    first = atoi(argv[3]);
    second = atoi(argv[4]);
    gap_ms = atoi(argv[5]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    child = fork();
    if (child == 0)
        exit(run_rank(argv[1], call_of(argv[2])));
    if (child < 0 || waitpid(child, &status, 0) < 0)
        return 1;
    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status);
    printf("dead %d %.6f\n", launched_as(), now());
    return WTERMSIG(status) == SIGKILL ? 0 : 1;
}
