/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * different BACKEND [STRIDE]: one rank makes another call than the other ranks, for every (or every
 * STRIDE-th) pair of the table. In some pairs no two messages match. Then all ranks call a barrier;
 * by its end every rank must have an error that names both calls, and the group of all ranks must
 * continue to work. In some cases the ranks leave the group instead and get the error then.
 */
#include <dist/dist.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 600
#define LONG 20000 /* elements of a single block */
#define RANKS_MAX 16
#define TIMEOUT_MS 20000
#define HABIT 40 /* short calls of one kind before the other call */

static int rank, ranks, checks;
static int32_t faults, all_faults;
static float in[RANKS_MAX * COUNT + LONG], out[RANKS_MAX * COUNT + LONG];

/* A call that some ranks make; `name` is its name in errors. */
struct called {
    const char *name;
    size_t count;
    dist_dtype dtype;
    dist_op op;
    int root;
    dist_status (*call)(dist_group *g, const struct called *c);
};

static dist_status call_all_reduce(dist_group *g, const struct called *c)
{
    return dist_all_reduce(g, in, out, c->count, c->dtype, c->op);
}

static dist_status call_coalesced(dist_group *g, const struct called *c)
{
    void *buffers[] = {in, out, in + COUNT};
    size_t counts[] = {c->count, (size_t)c->root, COUNT / 2 - c->count - (size_t)c->root};

    return dist_all_reduce_coalesced(g, buffers, counts, 3, c->dtype, c->op);
}

static dist_status call_reduce(dist_group *g, const struct called *c)
{
    return dist_reduce(g, in, out, c->count, c->dtype, c->op, c->root);
}

static dist_status call_broadcast(dist_group *g, const struct called *c)
{
    return dist_broadcast(g, in, c->count, c->dtype, c->root < 0 ? rank : c->root);
}

static dist_status call_gather(dist_group *g, const struct called *c)
{
    return dist_gather(g, in, out, c->count, c->dtype, c->root < 0 ? rank : c->root);
}

static dist_status call_scatter(dist_group *g, const struct called *c)
{
    return dist_scatter(g, in, out, c->count, c->dtype, c->root < 0 ? rank : c->root);
}

static dist_status call_all_gather(dist_group *g, const struct called *c)
{
    return dist_all_gather(g, in, out, c->count, c->dtype);
}

static dist_status call_reduce_scatter(dist_group *g, const struct called *c)
{
    return dist_reduce_scatter(g, in, out, c->count, c->dtype, c->op);
}

static dist_status call_reduce_scatter_v(dist_group *g, const struct called *c)
{
    size_t counts[RANKS_MAX];

    for (int r = 0; r < ranks; r++)
        counts[r] = c->count + (size_t)r;
    return dist_reduce_scatter_v(g, in, out, counts, c->dtype, c->op);
}

static dist_status call_all_to_all(dist_group *g, const struct called *c)
{
    return dist_all_to_all(g, in, out, c->count, c->dtype);
}

/* Every rank sends `count` elements to the next rank only. */
static dist_status call_all_to_all_v(dist_group *g, const struct called *c)
{
    size_t send[RANKS_MAX] = {0}, recv[RANKS_MAX] = {0};

    send[(rank + 1) % ranks] = c->count;
    recv[(rank + ranks - 1) % ranks] = c->count;
    return dist_all_to_all_v(g, in, send, NULL, out, recv, NULL, c->dtype);
}

/* The last rank's block has `count` elements. */
static void last_counts(const struct called *c, size_t *counts)
{
    for (int r = 0; r < ranks; r++)
        counts[r] = r == ranks - 1 ? c->count : 3;
}

static dist_status call_gather_v(dist_group *g, const struct called *c)
{
    size_t counts[RANKS_MAX];

    last_counts(c, counts);
    return dist_gather_v(g, in, counts[rank], out, counts, NULL, c->dtype, c->root);
}

static dist_status call_scatter_v(dist_group *g, const struct called *c)
{
    size_t counts[RANKS_MAX];

    last_counts(c, counts);
    return dist_scatter_v(g, in, counts, NULL, out, counts[rank], c->dtype, c->root);
}

static dist_status call_all_gather_v(dist_group *g, const struct called *c)
{
    size_t counts[RANKS_MAX];

    for (int r = 0; r < ranks; r++)
        counts[r] = c->count + (size_t)r;
    return dist_all_gather_v(g, in, out, counts, NULL, c->dtype);
}

/* The barrier as one of the two calls of a pair. */
static dist_status call_barrier(dist_group *g, const struct called *c)
{
    (void)c;
    return dist_barrier(g);
}

static const struct called calls[] = {
    {"broadcast", 5, DIST_FLOAT32, DIST_SUM, 0, call_broadcast},
    {"broadcast", 5, DIST_FLOAT32, DIST_SUM, 1, call_broadcast},
    {"broadcast", 5, DIST_INT32, DIST_SUM, 0, call_broadcast},
    {"broadcast", COUNT, DIST_FLOAT32, DIST_SUM, 0, call_broadcast},
    {"broadcast", COUNT, DIST_FLOAT32, DIST_SUM, 1, call_broadcast},
    {"broadcast", 0, DIST_FLOAT32, DIST_SUM, 0, call_broadcast},
    {"all_reduce", 5, DIST_FLOAT32, DIST_SUM, 0, call_all_reduce},
    {"all_reduce", 5, DIST_FLOAT32, DIST_MAX, 0, call_all_reduce},
    {"all_reduce", 5, DIST_INT32, DIST_SUM, 0, call_all_reduce},
    {"all_reduce", COUNT, DIST_FLOAT32, DIST_SUM, 0, call_all_reduce},
    {"all_reduce", 7, DIST_FLOAT32, DIST_SUM, 11, call_coalesced},
    {"all_reduce", 11, DIST_FLOAT32, DIST_SUM, 7, call_coalesced},
    {"reduce", 5, DIST_FLOAT32, DIST_SUM, 0, call_reduce},
    {"reduce", 5, DIST_FLOAT32, DIST_SUM, 1, call_reduce},
    {"reduce", 5, DIST_FLOAT32, DIST_MAX, 0, call_reduce},
    {"reduce", 5, DIST_INT32, DIST_SUM, 0, call_reduce},
    {"reduce", COUNT, DIST_FLOAT32, DIST_SUM, 0, call_reduce},
    {"gather", 5, DIST_FLOAT32, DIST_SUM, 0, call_gather},
    {"gather", 5, DIST_FLOAT32, DIST_SUM, 1, call_gather},
    {"gather", 5, DIST_INT32, DIST_SUM, 0, call_gather},
    {"gather", COUNT, DIST_FLOAT32, DIST_SUM, 1, call_gather},
    {"scatter", 5, DIST_FLOAT32, DIST_SUM, 0, call_scatter},
    {"scatter", 5, DIST_FLOAT32, DIST_SUM, 1, call_scatter},
    {"scatter", 5, DIST_INT32, DIST_SUM, 0, call_scatter},
    {"scatter", COUNT, DIST_FLOAT32, DIST_SUM, 0, call_scatter},
    {"all_gather", 5, DIST_FLOAT32, DIST_SUM, 0, call_all_gather},
    {"all_gather", COUNT, DIST_FLOAT32, DIST_SUM, 0, call_all_gather},
    {"all_gather", 5, DIST_INT32, DIST_SUM, 0, call_all_gather},
    {"all_gather_v", 5, DIST_FLOAT32, DIST_SUM, 0, call_all_gather_v},
    {"all_gather_v", 6, DIST_FLOAT32, DIST_SUM, 0, call_all_gather_v},
    {"all_gather_v", 5, DIST_INT32, DIST_SUM, 0, call_all_gather_v},
    {"reduce_scatter", 5, DIST_FLOAT32, DIST_SUM, 0, call_reduce_scatter},
    {"reduce_scatter", COUNT, DIST_FLOAT32, DIST_SUM, 0, call_reduce_scatter},
    {"reduce_scatter", 5, DIST_FLOAT32, DIST_MAX, 0, call_reduce_scatter},
    {"reduce_scatter", 5, DIST_INT32, DIST_SUM, 0, call_reduce_scatter},
    {"reduce_scatter_v", 5, DIST_FLOAT32, DIST_SUM, 0, call_reduce_scatter_v},
    {"reduce_scatter_v", 6, DIST_FLOAT32, DIST_SUM, 0, call_reduce_scatter_v},
    {"reduce_scatter_v", 5, DIST_FLOAT32, DIST_MAX, 0, call_reduce_scatter_v},
    {"all_to_all", 5, DIST_FLOAT32, DIST_SUM, 0, call_all_to_all},
    {"all_to_all", COUNT, DIST_FLOAT32, DIST_SUM, 0, call_all_to_all},
    {"all_to_all", 5, DIST_INT32, DIST_SUM, 0, call_all_to_all},
    {"all_to_all_v", 5, DIST_FLOAT32, DIST_SUM, 0, call_all_to_all_v},
    {"all_to_all_v", 5, DIST_INT32, DIST_SUM, 0, call_all_to_all_v},
    {"gather_v", 5, DIST_FLOAT32, DIST_SUM, 0, call_gather_v},
    {"gather_v", 5, DIST_FLOAT32, DIST_SUM, 1, call_gather_v},
    {"gather_v", 5, DIST_INT32, DIST_SUM, 0, call_gather_v},
    {"scatter_v", 5, DIST_FLOAT32, DIST_SUM, 0, call_scatter_v},
    {"scatter_v", 5, DIST_FLOAT32, DIST_SUM, 1, call_scatter_v},
    {"scatter_v", 5, DIST_INT32, DIST_SUM, 0, call_scatter_v},
    {"barrier", 0, DIST_FLOAT32, DIST_SUM, 0, call_barrier},
};
#define CALLS ((int)(sizeof(calls) / sizeof(calls[0])))

/* Each rank passes itself as the root, so most ranks return at once. */
static const struct called own_roots[] = {
    {"broadcast", 5, DIST_FLOAT32, DIST_SUM, -1, call_broadcast},
    {"broadcast", COUNT, DIST_FLOAT32, DIST_SUM, -1, call_broadcast},
    {"scatter", 5, DIST_FLOAT32, DIST_SUM, -1, call_scatter},
    {"gather", 5, DIST_FLOAT32, DIST_SUM, -1, call_gather},
};
#define OWN_ROOTS ((int)(sizeof(own_roots) / sizeof(own_roots[0])))

/* The last rank makes each call with the count of the next entry. */
#define FORMS(count)                                                                               \
    {"gather_v", count, DIST_FLOAT32, DIST_SUM, 0, call_gather_v},                                 \
        {"scatter_v", count, DIST_FLOAT32, DIST_SUM, 0, call_scatter_v},                           \
    {                                                                                              \
        "all_to_all_v", count, DIST_FLOAT32, DIST_SUM, 0, call_all_to_all_v                        \
    }
static const struct called own_counts[] = {FORMS(5), FORMS(6), FORMS(LONG), FORMS(LONG - 1),
                                           FORMS(5)};
#define OWN_COUNTS ((int)(sizeof(own_counts) / sizeof(own_counts[0])))

static void fault(const char *a, const char *b, const char *what, const char *text)
{
    faults++;
    fprintf(stderr, "rank %d: FAULT %s beside %s: %s: %s\n", rank, a, b, what, text);
}

static void check_sound(dist_group *world, const struct called *a, const struct called *b)
{
    int32_t mine = rank + 1, sum = 0;

    if (dist_all_reduce(world, &mine, &sum, 1, DIST_INT32, DIST_SUM) != DIST_OK)
        fault(a->name, b->name, "the group of all ranks has failed", dist_last_error());
    else if (sum != ranks * (ranks + 1) / 2)
        fault(a->name, b->name, "the group of all ranks", "its sum is wrong");
}

/* All ranks make call a `same` times. Then the last rank calls b, the other ranks call a, and all
 * call a barrier. */
static void differ_after(dist_group *world, int same, const struct called *a,
                         const struct called *b)
{
    const struct called *mine = rank == ranks - 1 ? b : a;
    dist_group *g = NULL;
    dist_status status = DIST_OK;

    if (dist_dup_group(world, NULL, &g) != DIST_OK) {
        fault(a->name, b->name, "no group", dist_last_error());
        return;
    }
    for (int i = 0; i < same && status == DIST_OK; i++)
        status = a->call(g, a);
    if (status != DIST_OK)
        fault(a->name, a->name, "the same on all ranks", dist_last_error());
    status = mine->call(g, mine);
    if (status == DIST_OK)
        status = dist_barrier(g);
    checks++;
    if (status != DIST_ERR_MISMATCH)
        fault(a->name, b->name, "status", status == DIST_OK ? "OK" : dist_last_error());
    else if (!strstr(dist_last_error(), a->name) || !strstr(dist_last_error(), b->name))
        fault(a->name, b->name, "the error does not name both calls", dist_last_error());
    dist_destroy_process_group(g);
    check_sound(world, a, b);
}

/* All ranks leave at once; a rank that did not get the error in its call gets it as it leaves. */
static void differ_and_leave(dist_group *world, const struct called *a, const struct called *b)
{
    const struct called *mine = rank == ranks - 1 ? b : a;
    dist_status status, left;
    dist_group *g = NULL;

    if (dist_dup_group(world, NULL, &g) != DIST_OK) {
        fault(a->name, b->name, "no group", dist_last_error());
        return;
    }
    status = mine->call(g, mine);
    left = dist_destroy_process_group(g);
    checks++;
    if ((status ? status : left) != DIST_ERR_MISMATCH)
        fault(a->name, b->name, "left with status", status || left ? dist_last_error() : "OK");
    else if (!strstr(dist_last_error(), a->name) || !strstr(dist_last_error(), b->name))
        fault(a->name, b->name, "the error of leaving does not name both calls", dist_last_error());
}

static void differ(dist_group *world, const struct called *a, const struct called *b)
{
    differ_after(world, 0, a, b);
}

int main(int argc, char **argv)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    int stride = argc > 2 ? atoi(argv[2]) : 1, pair = 0;
    dist_group *world;

    options.backend = argc > 1 ? argv[1] : NULL;
    options.timeout_ms = TIMEOUT_MS;
    if (dist_init_process_group(&options, &world) != DIST_OK) {
        fprintf(stderr, "init: %s\n", dist_last_error());
        return 1;
    }
    rank = dist_get_rank(world);
    ranks = dist_get_world_size(world);
    for (int r = 0; r < OWN_ROOTS; r++)
        differ(world, &own_roots[r], &own_roots[r]);
    for (int r = 0; r < OWN_ROOTS; r++)
        differ_and_leave(world, &own_roots[r], &own_roots[r]);
    for (int c = 0; c + 1 < CALLS; c += 3)
        differ_and_leave(world, &calls[c], &calls[c + 1]);
    for (int c = 0; c + 3 < OWN_COUNTS; c++)
        differ(world, &own_counts[c], &own_counts[c + 3]);
    for (int c = 0; own_counts[c].count < LONG; c++)
        differ_after(world, HABIT, &own_counts[c], &own_counts[c + 3]);
    for (int a = 0; a < CALLS; a++) {
        for (int b = 0; b < CALLS; b++) {
            /* A barrier against a call without data would be two barriers in a row. */
            if (a != b && pair++ % stride == 0)
                differ(world, &calls[a], &calls[b]);
        }
    }
    /* A launcher may kill all ranks when one exits, so no rank may exit early. */
    if (dist_all_reduce(world, &faults, &all_faults, 1, DIST_INT32, DIST_SUM) != DIST_OK)
        fault("all", "all", "the sum of the faults", dist_last_error());
    else if (rank == 0 && !all_faults)
        printf("different: %d pairs\n", checks);
    fflush(stdout);
    if (dist_destroy_process_group(world) != DIST_OK && ++faults)
        fprintf(stderr, "rank %d: FAULT destroy: %s\n", rank, dist_last_error());
    return faults ? 1 : 0;
}
