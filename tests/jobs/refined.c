/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * refined TRIED: collectives of several sizes, interleaved and several at a time, on ranks that a
 * launcher started; every result is checked. Then rank 0 says what dist_explain knows of the
 * choices. TRIED yes: every one must have been refined to the fastest that was tried, on all ranks
 * alike, and not all of them to what was predicted; no: none was refined.
 */
#include <dist/backend.h>
#include <dist/dist.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALLS 64
#define LONGEST 16384
#define RANKS_MAX 16
#define ROOM 80
#define KINDS 5

struct kind {
    dist_collective collective;
    size_t count; /* int32 */
};

static const struct kind kinds[KINDS] = {{DIST_COLL_ALL_REDUCE, 2},
                                         {DIST_COLL_BROADCAST, 256},
                                         {DIST_COLL_ALL_REDUCE, 256},
                                         {DIST_COLL_REDUCE, LONGEST},
                                         {DIST_COLL_ALL_GATHER, 512}};

static dist_group *world;
static int rank, ranks;
static int32_t in[KINDS][LONGEST], out[KINDS][LONGEST];

static int fail(const char *what)
{
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, dist_last_error());
    return 1;
}

/* What rank r gives at place i to a call. */
static int32_t given(int r, size_t i, int call)
{
    return (int32_t)(i % 1000) + 7 * r + 13 * call;
}

static dist_status start(int kind, int call, dist_work **work_p)
{
    size_t count = kinds[kind].count;

    for (size_t i = 0; i < count; i++) {
        in[kind][i] = given(rank, i, call);
        out[kind][i] = kinds[kind].collective == DIST_COLL_BROADCAST ? in[kind][i] : -1;
    }
    switch (kinds[kind].collective) {
    case DIST_COLL_ALL_REDUCE:
        return dist_all_reduce_async(world, in[kind], out[kind], count, DIST_INT32, DIST_SUM,
                                     work_p);
    case DIST_COLL_BROADCAST:
        return dist_broadcast_async(world, out[kind], count, DIST_INT32, call % ranks, work_p);
    case DIST_COLL_REDUCE:
        return dist_reduce_async(world, in[kind], out[kind], count, DIST_INT32, DIST_SUM,
                                 call % ranks, work_p);
    default:
        return dist_all_gather_async(world, in[kind], out[kind], count, DIST_INT32, work_p);
    }
}

/* Place i of the result. */
static int32_t wanted(int kind, size_t i, int call)
{
    size_t count = kinds[kind].count;
    int32_t sum = 0;

    for (int r = 0; r < ranks; r++)
        sum += given(r, i, call);
    if (kinds[kind].collective == DIST_COLL_BROADCAST)
        return given(call % ranks, i, call);
    if (kinds[kind].collective == DIST_COLL_ALL_GATHER)
        return given((int)(i / count), i % count, call);
    if (kinds[kind].collective == DIST_COLL_REDUCE && rank != call % ranks)
        return out[kind][i]; /* whatever it is */
    return sum;
}

static bool right(int kind, int call)
{
    bool gathers = kinds[kind].collective == DIST_COLL_ALL_GATHER;
    size_t places = kinds[kind].count * (size_t)(gathers ? ranks : 1);

    for (size_t i = 0; i < places; i++) {
        if (out[kind][i] != wanted(kind, i, call))
            return false;
    }
    return true;
}

/* All kinds at once, in an order that changes from call to call. */
static int run(void)
{
    dist_work *works[KINDS];

    for (int call = 0; call < CALLS; call++) {
        for (int k = 0; k < KINDS; k++) {
            int kind = (k + call) % KINDS;

            if (start(kind, call, &works[kind]) != DIST_OK)
                return fail("it cannot start");
        }
        for (int kind = 0; kind < KINDS; kind++) {
            if (dist_wait(works[kind]) != DIST_OK)
                return fail("it failed");
            if (!right(kind, call))
                return fail("a result is wrong");
        }
    }
    return 0;
}

/* ---- what came of it ---- */

static const struct dist_candidate *ask(const struct kind *kind, struct dist_explanation *said,
                                        struct dist_candidate *rows)
{
    struct dist_question question = {.size = sizeof(question),
                                     .collective = kind->collective,
                                     .bytes = kind->count * sizeof(int32_t),
                                     .ranks = ranks};

    *said = (struct dist_explanation){.size = sizeof(*said)};
    if (dist_explain(&question, rows, ROOM, said) != DIST_OK)
        return NULL;
    for (int i = 0; i < said->candidates && i < ROOM; i++) {
        if (rows[i].chosen)
            return &rows[i];
    }
    return NULL;
}

static bool fastest(const struct dist_candidate *chosen, const struct dist_candidate *rows,
                    int count)
{
    int tried = 0;

    for (int i = 0; i < count; i++) {
        tried += rows[i].tried >= 0;
        if (rows[i].tried >= 0 && rows[i].tried < chosen->tried)
            return false;
    }
    return tried >= 2 && chosen->tried > 0;
}

/* Do all ranks say this? */
static bool unanimous(const struct dist_candidate *chosen)
{
    char mine[64] = "", all[RANKS_MAX][64];

    snprintf(mine, sizeof(mine), "%s %d %.9f", chosen->algorithm, chosen->segments, chosen->tried);
    if (dist_all_gather(world, mine, all, sizeof(mine), DIST_UINT8) != DIST_OK)
        return false;
    for (int r = 0; r < ranks; r++) {
        if (memcmp(all[r], mine, sizeof(mine)) != 0)
            return false;
    }
    return true;
}

static int check(bool tried)
{
    struct dist_candidate rows[ROOM];
    struct dist_explanation said;
    int others = 0;

    for (int k = 0; k < KINDS; k++) {
        const struct dist_candidate *chosen = ask(&kinds[k], &said, rows);

        if (!chosen || said.refined != tried)
            return fail("the explanation is not that");
        if (tried && !fastest(chosen, rows, said.candidates))
            return fail("another was faster");
        if (!unanimous(chosen))
            return fail("ranks chose differently");
        if (rank == 0)
            printf("%s of %zu bytes: predicted %s, chosen %s, since %s\n",
                   dist_collective_string(kinds[k].collective), kinds[k].count * sizeof(int32_t),
                   rows[0].algorithm, chosen->algorithm, said.reason);
        others += chosen != &rows[0];
    }
    return tried && !others ? fail("everything is as it was predicted") : 0;
}

int main(int argc, char **argv)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    int code;

    if (argc != 2)
        return 2;
    options.backend = "gloo";
    if (dist_init_process_group(&options, &world) != DIST_OK)
        return fail("it cannot join");
    rank = dist_get_rank(world);
    ranks = dist_get_world_size(world);
    code = ranks > RANKS_MAX ? 2 : run();
    if (code == 0)
        code = check(strcmp(argv[1], "yes") == 0);
    if (dist_destroy_process_group(world) != DIST_OK && code == 0)
        code = fail("it cannot leave");
    return code;
}
