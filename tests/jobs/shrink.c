/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shrink BACKEND VICTIMS SEED [any]: kills VICTIMS ranks at random times while all ranks reduce;
 * rank 0 only with `any`. The remaining ranks shrink their group each time they lose one. They exit
 * with 0 if all of them continue together, with right results, after the last death.
 *
 * shrink BACKEND deaths RANK,RANK...: kills these ranks one after the other, each after the
 * remaining ranks have made some calls together. A remaining rank prints when it continues. The
 * ranks are the processes that the launcher started, so it sees the deaths.
 *
 * shrink BACKEND spawned RANKS RANK,RANK...: as deaths, but started by dist_spawn_with.
 *
 * shrink BACKEND absent: rank 1 stays alive but makes no call: the error of the other ranks names
 * it.
 *
 * shrink BACKEND store: rank 0, which serves the store, is killed. The error of the remaining ranks
 * says so, with a status after which programs do not retry.
 */
#include <dist/dist.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RANKS_MAX 64
#define COUNT 20000
#define AFTER 20 /* calls of the remaining ranks */
#define MOST_US 200000

static unsigned long long shrink_state;

static unsigned shrink_random(unsigned below)
{
    shrink_state = shrink_state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned)(shrink_state >> 33) % below;
}

static void shrink_sleep_us(unsigned us)
{
    const struct timespec time = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000L};

    nanosleep(&time, NULL);
}

static void *shrink_die(void *arg)
{
    shrink_sleep_us(*(unsigned *)arg);
    kill(getpid(), SIGKILL);
    return NULL;
}

/* Draws the victims, equally on all ranks. Returns the microseconds after which this rank dies, or
 * 0. */
static unsigned shrink_draw(int rank, int ranks, int victims, int first)
{
    unsigned dies[RANKS_MAX] = {0};

    while (victims > 0) {
        unsigned r = (unsigned)first + shrink_random((unsigned)(ranks - first)),
                 at = 1 + shrink_random(MOST_US);

        if (dies[r])
            continue;
        dies[r] = at;
        victims--;
    }
    return dies[rank];
}

static int shrink_fault(const dist_group *world, const char *what)
{
    fprintf(stderr, "FAULT: rank %d: %s: %s\n", dist_get_rank(world), what, dist_last_error());
    return 1;
}

/* True if the sum contains all ranks of the group and no other rank. */
static bool shrink_right(const dist_group *group, const int *sums)
{
    int expected = 0;

    for (int r = 0; r < dist_get_world_size(group); r++)
        expected += 1 << dist_get_global_rank(group, r) % 24;
    for (int i = 0; i < COUNT; i++) {
        if (sums[i] != expected)
            return false;
    }
    return true;
}

static dist_status shrink_step(dist_group *group, int world_rank)
{
    static int values[COUNT];

    for (int i = 0; i < COUNT; i++)
        values[i] = 1 << world_rank % 24;
    return dist_all_reduce(group, values, values, COUNT, DIST_INT32, DIST_SUM) == DIST_OK
               ? shrink_right(group, values) ? DIST_OK : DIST_ERR_INTERNAL
               : DIST_ERR_PEER_LOST;
}

static double shrink_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Shrinks until `left` ranks have made AFTER calls together in *group_p, the latest group. */
static int shrink_continue(dist_group *world, dist_group **group_p, int left)
{
    dist_group *group = *group_p, *smaller;
    double call = 0;

    for (int after = 0; after < AFTER; after += dist_get_world_size(group) == left) {
        dist_status status;

        if (after == 0)
            call = shrink_now();
        status = shrink_step(group, dist_get_rank(world));

        if (status == DIST_ERR_INTERNAL)
            return shrink_fault(world, "a wrong sum");
        if (status == DIST_OK)
            continue;
        if (dist_shrink(group, NULL, &smaller) != DIST_OK)
            return shrink_fault(world, "dist_shrink");
        if (group != world)
            dist_destroy_process_group(group);
        *group_p = group = smaller;
        if (dist_get_world_size(group) == left)
            printf("rank %d goes on with %d after %.2f s\n", dist_get_rank(world), left,
                   shrink_now() - call);
    }
    return dist_get_world_size(group) == left ? 0 : shrink_fault(world, "too few ranks are left");
}

static int shrink_deaths(dist_group *world, const char *list)
{
    int left = dist_get_world_size(world), code = 0;
    dist_group *group = world;
    char *end;

    for (; *list && code == 0; left--) {
        code = shrink_continue(world, &group, left);
        if (code == 0 && strtol(list, &end, 10) == dist_get_rank(world))
            kill(getpid(), SIGKILL);
        list = *end == ',' ? end + 1 : end;
    }
    return code ? code : shrink_continue(world, &group, left);
}

/* dist_shrink must fail with that status and `text` in its error. */
static int shrink_refused(dist_group *world, dist_status expected, const char *text)
{
    struct dist_group_options options = DIST_GROUP_OPTIONS_INIT;
    dist_group *group;

    options.timeout_ms = 1000;
    if (dist_shrink(world, &options, &group) != expected)
        return shrink_fault(world, "dist_shrink should have failed in another way");
    return strstr(dist_last_error(), text) ? 0 : shrink_fault(world, text);
}

static int shrink_run(dist_group *world, int argc, char **argv)
{
    int rank = dist_get_rank(world), victims = argc > 3 ? atoi(argv[2]) : 0;
    dist_group *group = world;
    unsigned dies;
    pthread_t thread;

    if (strcmp(argv[2], "absent") == 0 && rank == 1) {
        shrink_sleep_us(2500000);
        return 0;
    }
    if (strcmp(argv[2], "absent") == 0)
        return shrink_refused(world, DIST_ERR_TIMEOUT, "rank 1 (");
    if (strcmp(argv[2], "store") == 0) {
        (void)dist_barrier(world); /* rank 0 is killed after all ranks have joined */
        if (rank == 0)
            kill(getpid(), SIGKILL);
        return shrink_step(world, rank) == DIST_ERR_PEER_LOST
                   ? shrink_refused(world, DIST_ERR_RENDEZVOUS, ", which holds the store, ")
                   : shrink_fault(world, "a call without rank 0");
    }
    if (strcmp(argv[2], "deaths") == 0 || strcmp(argv[2], "spawned") == 0)
        return shrink_deaths(world, argv[argc - 1]);
    shrink_state = strtoull(argv[3], NULL, 10);
    dies = shrink_draw(rank, dist_get_world_size(world), victims, argc > 4 ? 0 : 1);
    if (dies)
        pthread_create(&thread, NULL, shrink_die, &dies);
    return shrink_continue(world, &group, dist_get_world_size(world) - victims);
}

static int shrink_rank(int argc, char **argv)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_group *world;
    int code;

    options.backend = argv[1];
    options.timeout_ms = 30000;
    if (dist_init_process_group(&options, &world) != DIST_OK) {
        fprintf(stderr, "FAULT: %s\n", dist_last_error());
        return 1;
    }
    code = shrink_run(world, argc, argv);
    dist_destroy_process_group(world);
    return code;
}

struct shrink_words {
    int argc;
    char **argv;
};

static int shrink_spawned(int rank, void *arg)
{
    struct shrink_words *words = arg;

    (void)rank;
    return shrink_rank(words->argc, words->argv);
}

static int shrink_spawn(int argc, char **argv)
{
    struct dist_spawn_options options = DIST_SPAWN_OPTIONS_INIT;
    struct shrink_words words = {argc, argv};
    int code;

    options.continue_on_failure = true;
    return dist_spawn_with(atoi(argv[3]), shrink_spawned, &words, &options, &code) ? 3 : code;
}

/* The ranks are children, so that a killed rank does not make the job fail. */
int main(int argc, char **argv)
{
    pid_t child;
    int status;

    if (argc < 3)
        return 2;
    if (strcmp(argv[2], "deaths") == 0)
        return shrink_rank(argc, argv);
    if (argc > 3 && strcmp(argv[2], "spawned") == 0)
        return shrink_spawn(argc, argv);
    child = fork();
    if (child == 0)
        return shrink_rank(argc, argv);
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 3;
    if (WIFSIGNALED(status))
        return WTERMSIG(status) == SIGKILL ? 0 : 128 + WTERMSIG(status);
    return WEXITSTATUS(status);
}
