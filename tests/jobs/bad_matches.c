/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bad_matches BACKEND [roots]: one rank calls with a different count, dtype, op or root. The group
 * of the call must fail on every rank with an error that names that rank; the group of all ranks
 * must continue to work. roots: also uses a different root where no two messages would match.
 */
#include <dist/dist.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COUNT 3000
#define RANKS_MAX 16
/* The maximum time until a rank learns that its group has failed. */
#define NOTICE_SECONDS 30

static int rank, ranks, checks, faults;
static float in[(RANKS_MAX + 1) * COUNT], out[(RANKS_MAX + 1) * COUNT];

/* Arguments of a call; the victim's differ in the count or in one other member. */
struct terms {
    size_t count;
    dist_dtype dtype;
    dist_op op;
    int root;
    size_t counts[RANKS_MAX];
};

typedef dist_status (*match_fn)(dist_group *g, const struct terms *t);

static dist_status call_all_reduce(dist_group *g, const struct terms *t)
{
    return dist_all_reduce(g, in, out, t->count, t->dtype, t->op);
}

static dist_status call_coalesced(dist_group *g, const struct terms *t)
{
    void *buffers[] = {in, out};
    size_t counts[] = {t->count, 5};

    return dist_all_reduce_coalesced(g, buffers, counts, 2, t->dtype, t->op);
}

static dist_status call_reduce(dist_group *g, const struct terms *t)
{
    return dist_reduce(g, in, out, t->count, t->dtype, t->op, t->root);
}

static dist_status call_broadcast(dist_group *g, const struct terms *t)
{
    return dist_broadcast(g, in, t->count, t->dtype, t->root);
}

static dist_status call_all_gather(dist_group *g, const struct terms *t)
{
    return dist_all_gather(g, in, out, t->count, t->dtype);
}

static dist_status call_all_gather_v(dist_group *g, const struct terms *t)
{
    return dist_all_gather_v(g, in, out, t->counts, NULL, t->dtype);
}

static dist_status call_reduce_scatter(dist_group *g, const struct terms *t)
{
    return dist_reduce_scatter(g, in, out, t->count, t->dtype, t->op);
}

static dist_status call_reduce_scatter_v(dist_group *g, const struct terms *t)
{
    return dist_reduce_scatter_v(g, in, out, t->counts, t->dtype, t->op);
}

static dist_status call_gather(dist_group *g, const struct terms *t)
{
    return dist_gather(g, in, out, t->count, t->dtype, t->root);
}

static dist_status call_gather_v(dist_group *g, const struct terms *t)
{
    return dist_gather_v(g, in, t->counts[rank], out, t->counts, NULL, t->dtype, t->root);
}

static dist_status call_scatter(dist_group *g, const struct terms *t)
{
    return dist_scatter(g, in, out, t->count, t->dtype, t->root);
}

static dist_status call_scatter_v(dist_group *g, const struct terms *t)
{
    return dist_scatter_v(g, in, t->counts, NULL, out, t->counts[rank], t->dtype, t->root);
}

static dist_status call_all_to_all(dist_group *g, const struct terms *t)
{
    return dist_all_to_all(g, in, out, t->count, t->dtype);
}

/* The other ranks send the victim the agreed counts; it expects and sends less. */
static dist_status call_all_to_all_v(dist_group *g, const struct terms *t)
{
    return dist_all_to_all_v(g, in, t->counts, NULL, out, t->counts, NULL, t->dtype);
}

/* Every rank sends to the next rank of the ring. */
static dist_status call_send_recv(dist_group *g, const struct terms *t)
{
    dist_status status;

    dist_group_start();
    dist_send(g, in, t->count, t->dtype, (rank + 1) % ranks, 3);
    dist_recv(g, out, COUNT, DIST_FLOAT32, (rank + ranks - 1) % ranks, 3, NULL);
    status = dist_group_end();
    return status;
}

static dist_status call_any_source(dist_group *g, const struct terms *t)
{
    dist_status status = DIST_OK;

    if (rank != 0)
        return dist_send(g, in, t->count, t->dtype, 0, 4);
    for (int r = 1; r < ranks && status == DIST_OK; r++)
        status = dist_recv(g, out, COUNT, DIST_FLOAT32, DIST_ANY_SOURCE, 4, NULL);
    return status;
}

/* Arguments in which the victim may differ, as bits. */
enum { COUNTS = 1, DTYPES = 2, OPS = 4, ROOTS = 8, SHORT_ROOTS = 16 };

static const struct {
    const char *name;
    match_fn call;
    int differ;
} matches[] = {
    {"all_reduce", call_all_reduce, COUNTS | DTYPES | OPS},
    {"all_reduce_coalesced", call_coalesced, COUNTS},
    {"reduce", call_reduce, COUNTS | OPS | ROOTS | SHORT_ROOTS},
    {"broadcast", call_broadcast, COUNTS | DTYPES | ROOTS | SHORT_ROOTS},
    {"all_gather", call_all_gather, COUNTS | DTYPES},
    {"all_gather_v", call_all_gather_v, COUNTS},
    {"reduce_scatter", call_reduce_scatter, COUNTS | OPS},
    {"reduce_scatter_v", call_reduce_scatter_v, COUNTS},
    {"gather", call_gather, COUNTS | DTYPES | ROOTS | SHORT_ROOTS},
    {"gather_v", call_gather_v, COUNTS},
    {"scatter", call_scatter, COUNTS | DTYPES | ROOTS | SHORT_ROOTS},
    {"scatter_v", call_scatter_v, COUNTS},
    {"all_to_all", call_all_to_all, COUNTS | DTYPES},
    {"all_to_all_v", call_all_to_all_v, COUNTS},
    {"send and recv", call_send_recv, COUNTS | DTYPES},
    {"recv from any source", call_any_source, COUNTS | DTYPES},
};

static void fault(const char *name, int what, const char *text)
{
    const char *differs = what == COUNTS   ? "count"
                          : what == DTYPES ? "dtype"
                          : what == OPS    ? "op"
                                           : "root";

    faults++;
    fprintf(stderr, "rank %d: FAULT %s with another %s: %s\n", rank, name, differs, text);
}

static struct terms terms_of(int what, int victim)
{
    struct terms t = {.count = COUNT, .dtype = DIST_FLOAT32, .op = DIST_SUM, .root = 0};
    bool odd = rank == victim;

    for (int r = 0; r < RANKS_MAX; r++)
        t.counts[r] = COUNT;
    if (odd && what == COUNTS) {
        t.count = COUNT / 2;
        for (int r = 0; r < RANKS_MAX; r++)
            t.counts[r] = COUNT / 2;
    }
    if (odd && what == DTYPES)
        t.dtype = DIST_INT32;
    if (odd && what == OPS)
        t.op = DIST_MAX;
    if (odd && what >= ROOTS)
        t.root = 1;
    if (what == SHORT_ROOTS)
        t.count = 5;
    return t;
}

/* Repeats a barrier until the group has failed; returns the group's status. */
static dist_status until_the_end(dist_group *g, dist_status status, char *text, size_t size)
{
    const struct timespec nap = {0, 20 * 1000 * 1000};
    time_t until = time(NULL) + NOTICE_SECONDS;

    while (status == DIST_OK && time(NULL) < until) {
        nanosleep(&nap, NULL);
        status = dist_barrier(g);
    }
    snprintf(text, size, "%s", status == DIST_OK ? "no error" : dist_last_error());
    return status;
}

static void sound(dist_group *world, const char *name, int what)
{
    int32_t mine = rank + 1, sum = 0;

    checks++;
    if (dist_all_reduce(world, &mine, &sum, 1, DIST_INT32, DIST_SUM) != DIST_OK)
        fault(name, what, dist_last_error());
    else if (sum != ranks * (ranks + 1) / 2)
        fault(name, what, "the other group's sum is wrong");
}

static void mismatch(dist_group *world, int m, int what)
{
    int victim = ranks - 1;
    struct terms t = terms_of(what, victim);
    char text[1024], named[32];
    dist_group *g = NULL;
    dist_status status;

    if (dist_dup_group(world, NULL, &g) != DIST_OK) {
        fault(matches[m].name, what, dist_last_error());
        return;
    }
    status = until_the_end(g, matches[m].call(g, &t), text, sizeof(text));
    checks++;
    snprintf(named, sizeof(named), "rank %d", victim);
    if (status != DIST_ERR_MISMATCH)
        fault(matches[m].name, what, text);
    else if (rank != victim && !strstr(text, named))
        fault(matches[m].name, what, text);
    status = dist_all_reduce(g, in, out, 1, DIST_FLOAT32, DIST_SUM);
    if (status != DIST_ERR_ABORTED)
        fault(matches[m].name, what, "the failed group accepted another call");
    sound(world, matches[m].name, what);
    dist_destroy_process_group(g);
}

int main(int argc, char **argv)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    int last = argc > 2 && strcmp(argv[2], "roots") == 0 ? SHORT_ROOTS : OPS;
    dist_group *world;

    options.backend = argc > 1 ? argv[1] : NULL;
    options.timeout_ms = NOTICE_SECONDS * 1000;
    if (dist_init_process_group(&options, &world) != DIST_OK) {
        fprintf(stderr, "init: %s\n", dist_last_error());
        return 1;
    }
    rank = dist_get_rank(world);
    ranks = dist_get_world_size(world);
    for (size_t m = 0; m < sizeof(matches) / sizeof(matches[0]); m++) {
        for (int what = COUNTS; what <= last; what *= 2) {
            if (matches[m].differ & what)
                mismatch(world, (int)m, what);
        }
    }
    /* A launcher may kill all ranks when one exits, so no rank may exit early. */
    if (rank == 0 && !faults)
        printf("bad matches: %d checks\n", checks);
    fflush(stdout);
    if (dist_destroy_process_group(world) != DIST_OK && ++faults)
        fprintf(stderr, "rank %d: FAULT destroy: %s\n", rank, dist_last_error());
    return faults ? 1 : 0;
}
