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
 * so that a window's reader pays for how it was written.
 */
#include "base/clock.h"
#include "node/state.h"

#include <stdint.h>

#define GAIT_TURNS 3 /* of those that do not stream */
/* Calls by areas in which both ways are tried. */
#define GAIT_AREA_TRIALS 8
/* They begin behind so many. */
#define GAIT_AREA_BEFORE 8

/* Number of calls of a class after which its trial begins anew: the first time, and later. */
#define TRIAL_CALLS_FIRST 64
#define TRIAL_CALLS 2000

static bool trial_runs(const struct node_trial *trial, int before, int calls)
{
    return trial->calls >= before && trial->calls < before + calls;
}

static void trial_record(struct node_trial *trial, int which, const struct disti_node_op *op,
                         int64_t took_ns)
{
    uint64_t bytes = op->largest * op->element_bytes;
    uint64_t ns = (uint64_t)took_ns * 1024 / (bytes / 1024 + 1) + 1;

    if (!trial->ns[which] || ns < trial->ns[which])
        trial->ns[which] = ns;
}

static void trial_count(struct node_trial *trial)
{
    if (++trial->calls == (trial->tried ? TRIAL_CALLS : TRIAL_CALLS_FIRST))
        *trial = (struct node_trial){.best = trial->best, .tried = true};
}

/* ---- the gait ---- */

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

static size_t node_class_bytes(int size_class);

/*
 * Calls in a row in which one is tried. A reduction tries each until the windows' rounds have all
 * been written so: until then they lie where another gait has left them. A long call uses each of
 * them more than once. Where the kernel may copy, the mover compares it with few calls, which are
 * to show several.
 */
static int gait_run(const struct disti_node_op *op)
{
    if (!disti_node_pattern(op->call.collective)->reduces)
        return 1;
    if (node_class_bytes(disti_node_size_class(op)) > NODE_ROUNDS * NODE_ROUND_BYTES)
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
    const struct node_trial *gait = direct ? &gaits->direct : &gaits->elsewhere;

    op->worked_ns = 0;
    op->tries_gait =
        trial_runs(gait, 0, gait_trials(node, op, direct)) && !gait_is_given(gaits, op);
    op->gait = op->tries_gait ? gait_tried(node, op, direct, gait->calls) : gait->best;
    if (gait_is_given(gaits, op))
        op->gait = NODE_ASKS | NODE_PAST;
    if (!past)
        op->gait &= (uint8_t)~NODE_PAST;
}

/*
 * Streams must save a quarter: the ranks may not agree, and who does not stream pays for others.
 * Who only gives does not see what its readers pay: it must save half.
 */
static uint64_t gait_cost(const struct node_trial *gait, uint8_t which, bool only_gives)
{
    return gait->ns[which] * (!(which & NODE_STREAMS) ? 3 : only_gives ? 6 : 4);
}

/* The trial ends after so many calls. */
static void gait_count(struct node_trial *gait, const struct disti_node_op *op, int trials,
                       bool only_gives)
{
    if (op->tries_gait)
        trial_record(gait, op->gait, op, op->worked_ns);
    if (gait->calls + 1 == trials) {
        for (uint8_t i = 0; i < NODE_GAITS; i++) {
            bool better = !gait->ns[gait->best] ||
                          gait_cost(gait, i, only_gives) < gait_cost(gait, gait->best, only_gives);
            if (gait->ns[i] && better)
                gait->best = i;
        }
    }
    trial_count(gait);
}

void disti_node_gait_learn(struct disti_node *node, const struct disti_node_op *op)
{
    struct node_gaits *gaits = gaits_of(node, op);
    bool direct = op->way == NODE_WAY_DIRECT, was_direct = gaits->was_direct;

    gaits->was_direct = direct;
    if (op->way != NODE_WAY_CMA && direct == was_direct)
        gait_count(direct ? &gaits->direct : &gaits->elsewhere, op, gait_trials(node, op, direct),
                   false);
}

/* ---- areas ---- */

void disti_node_area_begin(struct disti_node *node, struct disti_node_op *op)
{
    const struct node_trial *gait = &gaits_of(node, op)->area;

    op->tries_gait = trial_runs(gait, GAIT_AREA_BEFORE, GAIT_AREA_TRIALS);
    if (gait->calls == GAIT_AREA_BEFORE)
        disti_node_use_ring(node);
    op->gait = op->tries_gait ? gait->calls % 2 * NODE_STREAMS : gait->best;
    op->worked_ns = -node_gait_clock(op);
}

void disti_node_area_shown(struct disti_node_op *op)
{
    if (op->gait & NODE_STREAMS)
        disti_node_store_fence();
    op->worked_ns += node_gait_clock(op);
}

void disti_node_area_take(struct disti_node_op *op)
{
    op->worked_ns -= node_gait_clock(op);
}

void disti_node_area_end(struct disti_node *node, struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);

    op->worked_ns += node_gait_clock(op);
    gait_count(&gaits_of(node, op)->area, op, GAIT_AREA_BEFORE + GAIT_AREA_TRIALS,
               pattern->givers != pattern->takers);
}

/*
 * Which way ordinary memory is moved. Where the data are is known only when all have come to a
 * call; so the calls before it, of the same collective and size class, tell.
 *
 * Up to NODE_AREA_BYTES a board is best, for who gives need not wait; unless the data are in
 * segments, where it would be a needless copy. So a few calls see where they are.
 *
 * Longer data go through windows, copied twice, in rounds; or are copied by the kernel, once, at
 * the price of system calls. What is faster depends on caches, kernel, size, and on how many ranks
 * share a CPU. So a few calls in a row take one way, then a few the other (windows are sooner when
 * they lie in the caches), and all ranks show what they measured:
 *
 *   call     0 ... 7   8 ... 11   12 ... 15   16
 *            CMA       CMA        windows     all see all times: the sooner way from now on
 *
 * A window that nobody has used yet has no pages, and whoever fills it first waits for each of
 * them: a program that makes a few calls does without, so the kernel copies in those. Long calls
 * use each page more than once: they try from the third on, and decide in the eleventh.
 *
 * What counts is the time from when all had come, and what a rank has put into its window before.
 * Ranks that share a CPU count the time that they had one: whoever gets it last finds the others'
 * work done, and would call that quick. The times of all ranks are added.
 *
 * Every rank counts the same calls and sees the same times, and so comes to the same answer. They
 * try again soon, when buffers and windows lie in the caches as they do from then on; and now and
 * then, for ranks move to other CPUs, and neighbours come and go.
 */

/* The trials begin behind so many calls; the call behind them decides. */
#define MOVER_BEFORE 8
#define MOVER_TRIALS 8
/* The same of calls so long that the windows' first pages are little of them. */
#define MOVER_BEFORE_LONG 2
/* So many calls in a row with data elsewhere than in segments: boards are taken. */
#define MOVER_LOOKS 2
/* The least class: calls of up to so many bytes. */
#define MOVER_LEAST 13

int disti_node_size_class(const struct disti_node_op *op)
{
    size_t bytes = op->largest * op->element_bytes;
    int size = 0;

    while (size < NODE_SIZES - 1 && bytes >> MOVER_LEAST >> size)
        size++;
    return size;
}

/* The least bytes of a size class. */
static size_t node_class_bytes(int size_class)
{
    return size_class ? (size_t)1 << (MOVER_LEAST - 1 + size_class) : 0;
}

static struct node_mover *mover_of(struct disti_node *node, const struct disti_node_op *op)
{
    return &node->movers[op->call.collective][disti_node_size_class(op)];
}

/* Calls before the trial. */
static int mover_before(const struct disti_node_op *op)
{
    const bool is_long = op->largest * op->element_bytes >= NODE_ROUNDS * NODE_ROUND_BYTES;

    return is_long ? MOVER_BEFORE_LONG : MOVER_BEFORE;
}

static bool mover_tries(const struct node_mover *mover, const struct disti_node_op *op)
{
    return trial_runs(&mover->trial, mover_before(op), MOVER_TRIALS);
}

static bool mover_decides(const struct node_mover *mover, const struct disti_node_op *op)
{
    return mover->trial.calls == mover_before(op) + MOVER_TRIALS;
}

static bool mover_begins_with_cma(const struct node_mover *mover, const struct disti_node_op *op)
{
    const bool cma_is_best = mover->trial.best == MOVER_CMA;
    int trial;

    if (mover->direct)
        return true;
    if (mover->trial.calls < MOVER_BEFORE_LONG) /* short calls stay here */
        return cma_is_best;
    trial = mover->trial.calls - mover_before(op);
    if (trial == MOVER_TRIALS)
        return true;
    return trial >= 0 && trial < MOVER_TRIALS ? trial < MOVER_TRIALS / 2 : cma_is_best;
}

/* Calls of pairs reduce nothing. */
bool disti_node_mover_leads(struct disti_node *node, const struct disti_node_op *op)
{
    return node->cma && !node->cma_refused && mover_begins_with_cma(mover_of(node, op), op);
}

bool disti_node_mover_takes_area(struct disti_node *node, const struct disti_node_op *op)
{
    struct node_mover *mover = mover_of(node, op);

    if (mover->trial.calls < MOVER_LOOKS)
        return false;
    trial_count(&mover->trial);
    return true;
}

void disti_node_mover_choose(struct disti_node *node, struct disti_node_op *op)
{
    struct node_mover *mover = mover_of(node, op);

    op->cma = (node->cma && !disti_node_pattern(op->call.collective)->reduces) &&
              mover_begins_with_cma(mover, op);
    if (mover->trial.calls < MOVER_LOOKS ||
        !disti_node_fits_area(op->call.collective, node->ranks, op->largest * op->element_bytes))
        return;
    op->way = NODE_WAY_BOARD;
    op->in_area = op->chosen = true;
    disti_node_roles(node, op);
    trial_count(&mover->trial);
}

void disti_node_mover_show(struct disti_node *node, const struct disti_node_op *op)
{
    const struct node_mover *mover = mover_of(node, op);
    struct node_locations *locations = &node_slot(node->board, op)->locations;

    if (mover_decides(mover, op)) {
        locations->mover_ns[false] = mover->trial.ns[MOVER_WINDOWS];
        locations->mover_ns[true] = mover->trial.ns[MOVER_CMA];
    }
}

static int64_t mover_clock(const struct disti_node *node)
{
    return disti_node_is_crowded(node) ? disti_thread_ns() : disti_now_ns();
}

void disti_node_mover_fill(struct disti_node *node, struct disti_node_op *op)
{
    const bool timed = mover_tries(mover_of(node, op), op);
    const int64_t begun = timed ? mover_clock(node) : 0;

    disti_node_work_fill(node, op, 0);
    if (timed)
        op->filled_ns = mover_clock(node) - begun;
}

void disti_node_mover_begin(struct disti_node *node, struct disti_node_op *op)
{
    struct node_mover *mover = mover_of(node, op);

    op->begun_ns = 0;
    if (op->way == NODE_WAY_DIRECT) {
        if (!mover->direct)
            *mover = (struct node_mover){.direct = true};
        return;
    }
    mover->direct = false;
    if (mover_decides(mover, op)) {
        /* Decides by the sum of all ranks' times; in a call of pairs the leader decides alone. */
        uint64_t all[2] = {0, 0};
        for (int r = 0; !op->paired && r < node->ranks; r++) {
            const struct node_locations *locations =
                &node_slot(node->peers[r].board, op)->locations;
            all[MOVER_WINDOWS] += locations->mover_ns[false];
            all[MOVER_CMA] += locations->mover_ns[true];
        }
        /* In the first trials windows have not found their gait: they may take a quarter more. */
        const uint64_t *ns = op->paired ? mover->trial.ns : all;
        const uint64_t cma = ns[MOVER_CMA], windows = ns[MOVER_WINDOWS];
        const bool prefers = mover->trial.tried ? cma >= windows : cma * 5 >= windows * 4;
        mover->trial.best = prefers ? MOVER_WINDOWS : MOVER_CMA;
    } else if (mover_tries(mover, op))
        op->begun_ns = mover_clock(node) - op->filled_ns;
    trial_count(&mover->trial);
}

void disti_node_mover_end(struct disti_node *node, const struct disti_node_op *op)
{
    if (op->begun_ns)
        trial_record(&mover_of(node, op)->trial, op->cma ? MOVER_CMA : MOVER_WINDOWS, op,
                     mover_clock(node) - op->begun_ns);
}
