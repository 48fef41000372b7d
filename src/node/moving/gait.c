/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The gait of a copy: as the C library does it, or with lines asked for ahead, or past the caches.
 * All give the same result. Which is soonest depends on the CPU (on some it takes twice as long to
 * ask for a line that another CPU has, on others half), on sizes, caches, and on who else uses
 * them. So every rank tries them in its own calls, of each collective and size class, and need not
 * agree with others:
 *
 *   call     0 1 2 0 1 2 0 1 2 0 1 2                               without windows
 *            0 4 1 5 2 6 3 7 0 4 1 5 2 6 3 7                       copies through windows
 *            0 0 0 0   4 4 4 4   1 1 1 1   5 5 5 5   2 2 2 2 ...   reductions; then the best
 *
 *   8 ...    0 4 0 4 0 4 0 4                                       by areas: too short for more
 *
 * What counts is the rank's own work, without its waits. All ranks try the same in the same call,
 * so that a window's reader pays for how it was written. Trials come again as those of mover.c do.
 */
#include "base/clock.h"
#include "node/pairs/course.h"

#include <string.h>

#define GAIT_TURNS 3 /* of those that do not stream */
/* Calls by areas in which both ways are tried. */
#define GAIT_AREA_TRIALS 8
/* They begin behind so many. */
#define GAIT_AREA_BEFORE 8
#define GAIT_AREA_DECIDES (GAIT_AREA_BEFORE + GAIT_AREA_TRIALS)
/* After so many calls of a class the trials begin anew, for the first time and then. */
#define GAIT_CALLS_FIRST 64
#define GAIT_CALLS 2000

static struct node_gaits *gaits_of(struct disti_node *node, const struct disti_node_op *op)
{
    return &node->gaits[op->call.collective][disti_node_size_class(op)];
}

/* A sum in segments reads and writes the memory of all ranks at once: it does best to ask for it.
 */
static bool gait_is_given(const struct node_gaits *gaits, const struct disti_node_op *op)
{
    return gaits->was_direct && disti_node_pattern(op->call.collective)->reduces;
}

/* Is there no window to stream into? Of two ranks that sum for both each writes over what it has
 * just read, in the other's window. */
static bool gait_never_streams(const struct disti_node *node, const struct disti_node_op *op,
                               bool direct)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);

    return direct || (node->ranks == 2 && pattern->slices && pattern->takers == NODE_ALL);
}

/*
 * Calls in a row in which one is tried. A reduction tries each until the windows' rounds have all
 * been written so: until then they lie where another gait has left them. A long call uses each of
 * them more than once. Where the kernel may copy, mover.c compares it with few calls, which are to
 * show several.
 */
static int gait_run(const struct disti_node_op *op)
{
    if (!disti_node_pattern(op->call.collective)->reduces)
        return 1;
    if (disti_node_class_bytes(disti_node_size_class(op)) > NODE_ROUNDS * NODE_ROUND_BYTES)
        return 2;
    return 4;
}

/* Calls in which all are tried, each twice at least. */
static int gait_trials(const struct disti_node *node, const struct disti_node_op *op, bool direct)
{
    const int run = gait_run(op);

    if (gait_never_streams(node, op, direct))
        return GAIT_TURNS * NODE_STREAMS;
    return (run > 1 ? run : 2) * NODE_GAITS;
}

static uint8_t gait_tried(const struct disti_node *node, const struct disti_node_op *op,
                          bool direct, int calls)
{
    const int turn = calls / gait_run(op) % NODE_GAITS;

    if (gait_never_streams(node, op, direct))
        return (uint8_t)(calls % NODE_STREAMS);
    return (uint8_t)(turn / 2 | (turn % 2 ? NODE_STREAMS : 0));
}

void disti_node_gait_choose(struct disti_node *node, struct disti_node_op *op, bool past)
{
    struct node_gaits *gaits = gaits_of(node, op);
    bool direct = gaits->was_direct;
    const struct node_gait *gait = direct ? &gaits->direct : &gaits->elsewhere;

    op->worked_ns = 0;
    op->tries_gait = gait->calls < gait_trials(node, op, direct) && !gait_is_given(gaits, op);
    op->gait = op->tries_gait ? gait_tried(node, op, direct, gait->calls) : gait->best;
    if (gait_is_given(gaits, op))
        op->gait = NODE_ASKS | NODE_PAST;
    if (!past)
        op->gait &= (uint8_t)~NODE_PAST;
}

static void gait_record(struct node_gait *gait, const struct disti_node_op *op)
{
    uint64_t bytes = op->largest * op->element_bytes;
    uint64_t ns = (uint64_t)op->worked_ns * 1024 / (bytes / 1024 + 1) + 1;
    uint32_t *least = &gait->ns[op->gait];

    if (!*least || ns < *least)
        *least = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
}

/*
 * Streams must save a quarter: the ranks may not agree, and who does not stream pays for others.
 * Who only gives does not see what its readers pay: it must save half.
 */
static uint64_t gait_cost(const struct node_gait *gait, uint8_t which, bool only_gives)
{
    return (uint64_t)gait->ns[which] * (!(which & NODE_STREAMS) ? 3 : only_gives ? 6 : 4);
}

static void gait_decide(struct node_gait *gait, bool only_gives)
{
    for (uint8_t i = 0; i < NODE_GAITS; i++) {
        bool better = !gait->ns[gait->best] ||
                      gait_cost(gait, i, only_gives) < gait_cost(gait, gait->best, only_gives);

        if (gait->ns[i] && better)
            gait->best = i;
    }
}

void disti_node_gait_learn(struct disti_node *node, const struct disti_node_op *op)
{
    struct node_gaits *gaits = gaits_of(node, op);
    bool direct = op->way == NODE_WAY_DIRECT, was_direct = gaits->was_direct;
    struct node_gait *gait = direct ? &gaits->direct : &gaits->elsewhere;

    gaits->was_direct = direct;
    if (op->way == NODE_WAY_CMA || direct != was_direct)
        return;
    if (op->tries_gait)
        gait_record(gait, op);
    if (++gait->calls == gait_trials(node, op, direct))
        gait_decide(gait, false);
    if (gait->calls == (gait->tried ? GAIT_CALLS : GAIT_CALLS_FIRST))
        *gait = (struct node_gait){.best = gait->best, .tried = true};
}

/* ---- areas ---- */

static void gait_choose_area(struct disti_node *node, struct disti_node_op *op)
{
    const struct node_gait *gait = &gaits_of(node, op)->area;

    op->tries_gait = gait->calls >= GAIT_AREA_BEFORE && gait->calls < GAIT_AREA_DECIDES;
    if (gait->calls == GAIT_AREA_BEFORE)
        disti_node_use_ring(node);
    op->gait = op->tries_gait ? gait->calls % 2 * NODE_STREAMS : gait->best;
}

static void gait_learn_area(struct disti_node *node, const struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    struct node_gait *gait = &gaits_of(node, op)->area;

    if (op->tries_gait)
        gait_record(gait, op);
    if (++gait->calls == GAIT_AREA_DECIDES)
        gait_decide(gait, pattern->givers != pattern->takers);
    if (gait->calls == (gait->tried ? GAIT_CALLS : GAIT_CALLS_FIRST))
        *gait = (struct node_gait){.best = gait->best, .tried = true};
}

/* ---- work, and its time ---- */

static int64_t gait_clock(const struct disti_node_op *op)
{
    return op->tries_gait ? disti_now_ns() : 0;
}

void disti_node_area_begin(struct disti_node *node, struct disti_node_op *op)
{
    gait_choose_area(node, op);
    op->worked_ns = -gait_clock(op);
}

void disti_node_area_shown(struct disti_node_op *op)
{
    if (op->gait & NODE_STREAMS)
        disti_node_store_fence();
    op->worked_ns += gait_clock(op);
}

void disti_node_area_take(struct disti_node_op *op)
{
    op->worked_ns -= gait_clock(op);
}

void disti_node_area_end(struct disti_node *node, struct disti_node_op *op)
{
    op->worked_ns += gait_clock(op);
    gait_learn_area(node, op);
}

bool disti_node_work(struct disti_node *node, struct disti_node_op *op)
{
    int64_t begun = gait_clock(op);
    bool ended;

    if (op->paired)
        ended = disti_node_pairs_work(node, op);
    else if (disti_node_pattern(op->call.collective)->reduces)
        ended = disti_node_reduce_some(node, op);
    else
        ended = disti_node_copy_some(node, op);
    op->worked_ns += gait_clock(op) - begun;
    return ended;
}

void disti_node_work_fill(struct disti_node *node, struct disti_node_op *op, uint64_t round)
{
    int64_t begun = gait_clock(op);

    if (op->paired)
        disti_node_pairs_fill(node, op, round);
    else
        disti_node_fill(node, op, round);
    if (op->gait & NODE_STREAMS)
        disti_node_store_fence();
    op->worked_ns += gait_clock(op) - begun;
}

void disti_node_work_drain(struct disti_node *node, struct disti_node_op *op, uint64_t round)
{
    int64_t begun = gait_clock(op);

    disti_node_drain(node, op, round);
    op->worked_ns += gait_clock(op) - begun;
}
