/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rooted BACKEND WAY: short collectives in which some ranks only send. Exit 0 if all is right.
 *
 *   ahead    the root's calls complete while the other ranks sleep: as many as fit in the mailboxes
 *   mixed    collectives, roots and lengths in random order, with every result checked
 *   differ   one rank makes another call among calls that no rank blocks in; a barrier reports it
 *   lost     rank 1 exits while the root broadcasts to it: the root gets an error
 *   leave    the root broadcasts and leaves the group; the other ranks read the data later
 *   forked   as leave, between a fork and the child's exit
 */
#include <dist/dist.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LATE_MS 400
#define COUNT_MAX 2400
#define RANKS_MAX 8

static int rank, ranks, faults;
static dist_group *group;
static int32_t in[RANKS_MAX * COUNT_MAX], out[RANKS_MAX * COUNT_MAX];

static void fault(const char *what, int number)
{
    if (faults++ < 5)
        fprintf(stderr, "rooted: rank %d: FAULT %s, call %d: %s\n", rank, what, number,
                dist_last_error());
}

static void sleep_ms(int ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

    nanosleep(&time, NULL);
}

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Returns element i that `sender` sends to `receiver` in that call. */
static int32_t value(int number, int sender, int receiver, size_t i)
{
    return number * 31 + sender * 1009 + receiver * 77 + (int32_t)i;
}

static void fill(int number, size_t count, int blocks)
{
    for (int b = 0; b < blocks; b++) {
        for (size_t i = 0; i < count; i++)
            in[(size_t)b * count + i] = value(number, rank, blocks > 1 ? b : 0, i);
    }
}

static bool is_from(const int32_t *block, int number, int sender, int receiver, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (block[i] != value(number, sender, receiver, i))
            return false;
    }
    return true;
}

/* ---- each collective, checked ---- */

static bool broadcast(int number, size_t count, int root)
{
    fill(number, count, 1);
    return dist_broadcast(group, in, count, DIST_INT32, root) == DIST_OK &&
           is_from(in, number, root, 0, count);
}

static bool scatter(int number, size_t count, int root)
{
    fill(number, count, ranks);
    return dist_scatter(group, in, out, count, DIST_INT32, root) == DIST_OK &&
           is_from(out, number, root, ranks > 1 ? rank : 0, count);
}

static bool gather(int number, size_t count, int root)
{
    bool right;

    fill(number, count, 1);
    right = dist_gather(group, in, out, count, DIST_INT32, root) == DIST_OK;
    for (int r = 0; r < ranks && rank == root; r++)
        right = right && is_from(out + (size_t)r * count, number, r, 0, count);
    return right;
}

/* Every second rank has half of the count. */
static size_t list_counts(size_t count, size_t *list)
{
    for (int r = 0; r < ranks; r++)
        list[r] = count >> (r & 1);
    return list[rank];
}

static bool scatter_v(int number, size_t count, int root)
{
    size_t list[RANKS_MAX] = {0}, mine = list_counts(count, list), offsets[RANKS_MAX];

    for (int r = 0; r < ranks; r++)
        offsets[r] = (size_t)r * count;
    fill(number, count, ranks);
    return dist_scatter_v(group, in, list, offsets, out, mine, DIST_INT32, root) == DIST_OK &&
           is_from(out, number, root, ranks > 1 ? rank : 0, mine);
}

static bool gather_v(int number, size_t count, int root)
{
    size_t list[RANKS_MAX] = {0}, mine = list_counts(count, list);
    const int32_t *at = out;
    bool right;

    fill(number, count, 1);
    right = dist_gather_v(group, in, mine, out, list, NULL, DIST_INT32, root) == DIST_OK;
    for (int r = 0; r < ranks && rank == root; at += list[r++])
        right = right && is_from(at, number, r, 0, list[r]);
    return right;
}

static bool sums(dist_status status, int number, size_t count)
{
    for (size_t i = 0; i < count && status == DIST_OK; i++) {
        int32_t sum = 0;

        for (int r = 0; r < ranks; r++)
            sum += value(number, r, 0, i);
        if (out[i] != sum)
            return false;
    }
    return status == DIST_OK;
}

static bool reduce(int number, size_t count, int root)
{
    dist_status status;

    fill(number, count, 1);
    status = dist_reduce(group, in, out, count, DIST_INT32, DIST_SUM, root);
    return rank == root ? sums(status, number, count) : status == DIST_OK;
}

static bool all_reduce(int number, size_t count, int root)
{
    (void)root;
    fill(number, count, 1);
    return sums(dist_all_reduce(group, in, out, count, DIST_INT32, DIST_SUM), number, count);
}

static bool barrier(int number, size_t count, int root)
{
    (void)number, (void)count, (void)root;
    return dist_barrier(group) == DIST_OK;
}

typedef bool (*one_call)(int number, size_t count, int root);
static const one_call calls[] = {broadcast, scatter,  gather,     reduce,
                                 scatter_v, gather_v, all_reduce, barrier};
#define ROOTED 6 /* the number of rooted calls, which are first in the list */
#define CALLS ((int)(sizeof(calls) / sizeof(calls[0])))

/* ---- the tests, one per WAY ---- */

/* Counts that fit in a slot, in an overflow slot, and in neither. */
static const size_t counts[] = {1, 2, 16, 56, 57, 256, 300, COUNT_MAX};
#define COUNTS (int)(sizeof(counts) / sizeof(counts[0]))

static void mixed(void)
{
    unsigned seed = 17;

    for (int number = 0; number < 6000; number++) {
        int kind = rand_r(&seed) % (number % 500 < 400 ? ROOTED : CALLS);
        size_t count = counts[rand_r(&seed) % (number % 300 < 200 ? 4 : COUNTS)];
        int root = rand_r(&seed) % (number % 200 < 100 ? ranks : 1);

        if (number % 997 == 0 && rank == number % ranks)
            sleep_ms(20);
        if (!calls[kind](number, count, root))
            fault("mixed", number);
    }
}

/* Counts the calls of rank 0, which only sends, that complete before the other ranks begin theirs.
 */
static void ahead(one_call call, int root, size_t count, int least, int most)
{
    int64_t until;
    int early = 0;

    dist_barrier(group);
    until = now_ms() + LATE_MS / 2;
    if (rank)
        sleep_ms(LATE_MS);
    for (int number = 0; number < 200; number++) {
        if (!call(number, count, root))
            fault("ahead", number);
        early += now_ms() < until;
    }
    if (rank == 0 && (early < least || early > most))
        fault("number of calls that completed early", early);
}

static void all_ahead(void)
{
    ahead(broadcast, 0, 2, 16, 136);
    ahead(broadcast, 0, 256, 4, 16);
    ahead(scatter_v, 0, 2, 16, 136);
    ahead(scatter_v, 0, 600, 4, 16);
    ahead(gather_v, 1, 2, 16, 136);
    ahead(gather_v, 1, 600, 4, 16);
}

static void differ(void)
{
    dist_status status = DIST_OK;

    for (int number = 0; number < 12 && status == DIST_OK; number++)
        status = dist_broadcast(group, in, 1, DIST_INT32, number == 5 && rank == 1);
    if (status == DIST_OK)
        status = dist_barrier(group);
    if (status != DIST_ERR_MISMATCH)
        fault("differ", 0);
    if (!strstr(dist_last_error(), "operation 5"))
        fault("differ: the error does not name the call", 0);
}

static void lost(void)
{
    dist_status status = DIST_OK;

    if (rank == 1)
        _exit(0);
    for (int number = 0; number < 1000 && status == DIST_OK; number++)
        status = dist_broadcast(group, in, 1, DIST_INT32, 0);
    if (status != DIST_ERR_PEER_LOST || !strstr(dist_last_error(), "rank 1"))
        fault("lost", 0);
}

static void leave(void)
{
    if (rank)
        sleep_ms(LATE_MS);
    for (int number = 0; number < 20; number++) {
        if (!broadcast(number, 3, 0))
            fault("leave", number);
    }
}

/* The child shares the memory of the mailboxes, and must not change it. */
static void forked(void)
{
    pid_t child;
    int how = 0;

    leave();
    child = fork();
    if (child == 0)
        _exit(dist_broadcast(group, in, 3, DIST_INT32, 0) == DIST_ERR_INVALID_ARGUMENT ? 0 : 1);
    leave();
    if (child < 0 || waitpid(child, &how, 0) != child || how)
        fault("forked: the child", how);
    leave();
}

static const struct {
    const char *name;
    void (*run)(void);
} ways[] = {{"ahead", all_ahead}, {"mixed", mixed}, {"differ", differ},
            {"lost", lost},       {"leave", leave}, {"forked", forked}};
#define WAYS ((int)(sizeof(ways) / sizeof(ways[0])))

int main(int argc, char **argv)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    const char *way = argc > 2 ? argv[2] : "";
    bool ends = strcmp(way, "differ") && strcmp(way, "lost");
    dist_status status;

    options.backend = argc > 2 ? argv[1] : "gloo";
    options.timeout_ms = 20000;
    if (dist_init_process_group(&options, &group) != DIST_OK) {
        fprintf(stderr, "rooted: %s\n", dist_last_error());
        return 1;
    }
    rank = dist_get_rank(group);
    ranks = dist_get_world_size(group);
    for (int w = 0; w < WAYS; w++) {
        if (strcmp(way, ways[w].name) == 0)
            ways[w].run();
    }
    status = dist_destroy_process_group(group);
    if (ends && status != DIST_OK)
        fault("destroy", 0);
    return faults != 0;
}
