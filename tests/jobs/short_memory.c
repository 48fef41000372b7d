/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * short_memory groups VICTIM: a group is made of the world repeatedly; in round i, rank VICTIM's
 * allocation i fails. Exit 0: no rank ever waited for long, and each time all ranks had the group
 * or none; ranks without it got an error that names the rank that lacked memory.
 *
 * short_memory BACKEND VICTIM STEP: makes a list of calls repeatedly, each time in a new world; an
 * allocation of rank VICTIM fails: first number 1, then STEP later each time. Exit 0: no rank ever
 * waited for long, and each time all ranks continued in step or the group had failed on all of
 * them.
 */
#include <dist/dist.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "scarce.h"

#define RANKS 3
#define TIMEOUT_MS 40000
#define LONG_S 20.0
#define SHORT 5         /* elements */
#define LARGE (1 << 18) /* elements; too long to be packed by a coalesced call */

/* ---- the calls */

static int rank;
static float in[RANKS * LARGE], out[RANKS * LARGE];
static const size_t counts[RANKS] = {SHORT, 1, SHORT + 2};

static dist_status reduces(dist_group *g)
{
    return dist_all_reduce(g, in, out, SHORT, DIST_FLOAT32, DIST_SUM);
}

static dist_status reduces_large(dist_group *g)
{
    return dist_all_reduce(g, in, out, LARGE, DIST_FLOAT32, DIST_SUM);
}

static dist_status reduces_to_root(dist_group *g)
{
    return dist_reduce(g, in, out, LARGE, DIST_FLOAT32, DIST_SUM, 0);
}

static dist_status broadcasts(dist_group *g)
{
    return dist_broadcast(g, out, LARGE, DIST_FLOAT32, 2);
}

static dist_status gathers_all(dist_group *g)
{
    return dist_all_gather(g, in, out, SHORT, DIST_FLOAT32);
}

static dist_status gathers_all_v(dist_group *g)
{
    return dist_all_gather_v(g, in, out, counts, NULL, DIST_FLOAT32);
}

static dist_status scatters_reduced(dist_group *g)
{
    return dist_reduce_scatter(g, in, out, SHORT, DIST_FLOAT32, DIST_SUM);
}

static dist_status scatters_reduced_v(dist_group *g)
{
    return dist_reduce_scatter_v(g, in, out, counts, DIST_FLOAT32, DIST_SUM);
}

static dist_status gathers(dist_group *g)
{
    return dist_gather(g, in, out, SHORT, DIST_FLOAT32, 1);
}

static dist_status gathers_v(dist_group *g)
{
    return dist_gather_v(g, in, counts[rank], out, counts, NULL, DIST_FLOAT32, 0);
}

static dist_status scatters(dist_group *g)
{
    return dist_scatter(g, in, out, SHORT, DIST_FLOAT32, 1);
}

static dist_status scatters_v(dist_group *g)
{
    return dist_scatter_v(g, in, counts, NULL, out, counts[rank], DIST_FLOAT32, 0);
}

static dist_status exchanges(dist_group *g)
{
    return dist_all_to_all(g, in, out, SHORT, DIST_FLOAT32);
}

static dist_status exchanges_v(dist_group *g)
{
    const size_t even[RANKS] = {SHORT, SHORT, SHORT};

    return dist_all_to_all_v(g, in, even, NULL, out, even, NULL, DIST_FLOAT32);
}

static dist_status posts(dist_group *g)
{
    dist_work *a, *b;
    dist_status first = dist_all_reduce_async(g, in, out, LARGE, DIST_FLOAT32, DIST_MAX, &a);
    dist_status second = dist_all_gather_v_async(g, in, out, counts, NULL, DIST_FLOAT32, &b);

    if (first == DIST_OK)
        first = dist_wait(a);
    if (second == DIST_OK)
        second = dist_wait(b);
    return first == DIST_OK ? second : first;
}

static dist_status coalesces(dist_group *g)
{
    void *const buffers[] = {out, out + LARGE, out + 2 * LARGE};
    const size_t lengths[] = {SHORT, LARGE, SHORT};

    return dist_all_reduce_coalesced(g, buffers, lengths, 3, DIST_FLOAT32, DIST_SUM);
}

static dist_status batches(dist_group *g)
{
    dist_status first = dist_group_start(), status = coalesces(g), ended;

    first = first == DIST_OK ? gathers_all_v(g) : first;
    for (int i = 0; i < 20 && first == DIST_OK; i++)
        first = reduces(g);
    ended = dist_group_end();
    status = status == DIST_OK ? first : status;
    return status == DIST_OK ? ended : status;
}

static dist_status messages(dist_group *g)
{
    int next = (rank + 1) % RANKS, before = (rank + RANKS - 1) % RANKS;
    dist_work *work;
    dist_status first = dist_irecv(g, out, LARGE, DIST_FLOAT32, before, 1, NULL, &work);
    dist_status status = dist_send(g, in, LARGE, DIST_FLOAT32, next, 1);

    if (first == DIST_OK)
        first = dist_wait(work);
    if (status == DIST_OK)
        status = dist_isend(g, in, SHORT, DIST_FLOAT32, next, 2, &work);
    if (status == DIST_OK) {
        status = dist_recv(g, out, SHORT, DIST_FLOAT32, DIST_ANY_SOURCE, 2, NULL);
        first = first == DIST_OK ? dist_wait(work) : (dist_wait(work), first);
    }
    return first == DIST_OK ? status : first;
}

/* If a persistent request could not be created, no call was made, so this tries again. */
static dist_status repeats(dist_group *g)
{
    dist_work *work;
    dist_status status = dist_all_reduce_init(g, in, out, LARGE, DIST_FLOAT32, DIST_SUM, &work);

    if (status == DIST_ERR_NO_MEMORY)
        status = dist_all_reduce_init(g, in, out, LARGE, DIST_FLOAT32, DIST_SUM, &work);
    if (status != DIST_OK)
        return status;
    status = dist_start(work);
    if (status == DIST_OK)
        status = dist_wait(work);
    dist_work_free(work);
    return status;
}

static const struct {
    const char *name;
    dist_status (*call)(dist_group *group);
} calls[] = {{"all_reduce", reduces},
             {"all_reduce, large", reduces_large},
             {"reduce", reduces_to_root},
             {"broadcast", broadcasts},
             {"all_gather", gathers_all},
             {"all_gather_v", gathers_all_v},
             {"reduce_scatter", scatters_reduced},
             {"reduce_scatter_v", scatters_reduced_v},
             {"gather", gathers},
             {"gather_v", gathers_v},
             {"scatter", scatters},
             {"scatter_v", scatters_v},
             {"all_to_all", exchanges},
             {"all_to_all_v", exchanges_v},
             {"asynchronous calls", posts},
             {"all_reduce_coalesced", coalesces},
             {"a batch", batches},
             {"messages", messages},
             {"a persistent call", repeats},
             {"barrier", dist_barrier}};

#define CALLS (sizeof(calls) / sizeof(calls[0]))

/* ---- */

static void must(dist_status status, const char *what)
{
    if (status == DIST_OK)
        return;
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, dist_last_error());
    exit(1);
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Makes all calls until one fails. Returns the index of that call. */
static size_t run(dist_group *group)
{
    dist_status status = DIST_OK;

    for (size_t i = 0; i < CALLS; i++) {
        status = calls[i].call(group);
        if (status == DIST_ERR_TIMEOUT || status == DIST_ERR_MISMATCH)
            fprintf(stderr, "rank %d: %s: %s\n", rank, calls[i].name, dist_last_error());
        if (status != DIST_OK)
            return i;
    }
    return CALLS;
}

/* The outcome of one round, which the ranks exchange in the next round's world. */
struct outcome {
    int32_t alive; /* the group still worked at the end */
    int32_t short_of_memory;
};

static bool in_step(dist_group *world, const struct outcome *mine, int victim, bool *more_p)
{
    struct outcome all[RANKS];

    must(dist_all_gather(world, mine, all, sizeof(*mine), DIST_UINT8),
         "outcomes of the other ranks");
    *more_p = all[victim].short_of_memory;
    return mine->alive == all[0].alive;
}

static struct outcome turn(dist_group *world, int victim, int number, bool *good_p)
{
    struct outcome mine = {.short_of_memory = true};
    double began = now_s();
    size_t failed;

    if (rank == victim)
        scarce_from(number);
    failed = run(world);
    if (rank == victim)
        mine.short_of_memory = scarce_end();
    mine.alive = dist_barrier(world) == DIST_OK;
    began = now_s() - began;
    *good_p = began < LONG_S && (!mine.alive || failed == CALLS);
    if (!*good_p)
        fprintf(stderr, "rank %d, allocation %d: %s, the group is %s after %.1f s\n", rank, number,
                failed < CALLS ? calls[failed].name : "no call failed",
                mine.alive ? "alive" : "gone", began);
    return mine;
}

/* ---- groups ---- */

static dist_status make_group(dist_group *world, int way, dist_group **made_p)
{
    const int all[RANKS] = {2, 0, 1};

    if (way == 0)
        return dist_dup_group(world, NULL, made_p);
    if (way == 1)
        return dist_new_group(world, all, RANKS, NULL, made_p);
    return dist_split_group(world, 0, 0, NULL, made_p);
}

/* Returns true if all ranks made the group or none did; otherwise prints the failure. */
static bool all_made(dist_group *world, int victim, int way, int number, bool made, double began)
{
    int32_t mine = made, all[RANKS];
    char name[16];
    bool same = true;

    snprintf(name, sizeof(name), "rank %d", victim);
    if (!made && rank != victim && !strstr(dist_last_error(), name)) {
        fprintf(stderr, "rank %d: the error does not name the rank: %s\n", rank, dist_last_error());
        return false;
    }
    must(dist_all_gather(world, &mine, all, 1, DIST_INT32), "results of the other ranks");
    for (int r = 0; r < RANKS; r++)
        same = same && all[r] == all[0];
    if (same && now_s() - began < LONG_S)
        return true;
    fprintf(stderr, "rank %d, way %d, allocation %d: %s after %.1f s\n", rank, way, number,
            made ? "made" : dist_last_error(), now_s() - began);
    return false;
}

/* Makes groups in one way until no allocation is left to fail. The first group also allocates a
 * list in the world; it is made without a fault. */
static bool make_groups(dist_group *world, int victim, int way)
{
    int32_t more[RANKS] = {1, 1, 1}, mine;
    bool good = true;

    for (int number = 0; good && more[victim]; number++) {
        const double began = now_s();
        dist_group *made = NULL;
        dist_status status;

        if (rank == victim && number)
            scarce_from(number);
        status = make_group(world, way, &made);
        mine = rank == victim && number ? scarce_end() : number == 0;
        good = all_made(world, victim, way, number, status == DIST_OK, began);
        if (status == DIST_OK)
            dist_destroy_process_group(made);
        must(dist_all_gather(world, &mine, more, 1, DIST_INT32), "whether there is more to do");
    }
    return good;
}

static int run_groups(int victim)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_group *world;
    bool good = true;

    options.backend = "gloo";
    options.timeout_ms = TIMEOUT_MS;
    must(dist_init_process_group(&options, &world), "init");
    rank = dist_get_rank(world);
    for (int way = 0; way < 3 && good; way++)
        good = make_groups(world, victim, way);
    dist_destroy_process_group(world);
    return good ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    struct outcome last = {.alive = true, .short_of_memory = true};
    int number = 1, victim, step;
    bool more = true, good = true;

    if (!scarce_works()) {
        printf("AddressSanitizer has an allocator of its own\n");
        return 77;
    }
    if (argc == 3 && strcmp(argv[1], "groups") == 0)
        return run_groups(atoi(argv[2]));
    if (argc != 4)
        return 2;
    victim = atoi(argv[2]);
    step = atoi(argv[3]);
    options.backend = argv[1];
    options.timeout_ms = TIMEOUT_MS;
    while (more && good) {
        dist_group *world;

        must(dist_init_process_group(&options, &world), "init");
        rank = dist_get_rank(world);
        if (dist_get_world_size(world) != RANKS)
            return 2;
        if (!in_step(world, &last, victim, &more)) {
            fprintf(stderr,
                    "rank %d: before allocation %d the group was %s, but not on all ranks\n", rank,
                    number, last.alive ? "alive" : "gone");
            return 1;
        }
        if (more)
            last = turn(world, victim, number, &good);
        dist_destroy_process_group(world); /* may return the error of the failed group again */
        number += step;
    }
    printf("rank %d: %d allocations\n", rank, number);
    return good ? 0 : 1;
}
