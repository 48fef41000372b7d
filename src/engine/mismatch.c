/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds ranks that called different things, also where no two of their messages meet. */
#include "engine/mismatch.h"

#include "base/clock.h"
#include "engine/state.h"

#include <stdlib.h>

/*
 * Where a message meets a receive their fingerprints are compared. Ranks that were called with
 * other roots may follow plans of which no message meets any. Then, as the plans of a call join all
 * its ranks, between two ranks of different calls one of two things is so:
 *
 *   one sends to the other       a message that nobody receives: of a call that was another one
 *                                here, or that has ended here without it
 *   one waits for the other      after a while it asks, with a query: a message of no bytes that
 *                                carries its call's number and fingerprint
 *
 * Both are looked for among the unexpected messages: a few of them in each call, all of them while
 * the rank has nothing else to do. A query is kept by its receiver until it gets to that call, and
 * dropped if the calls are the same.
 *
 *     rank 0  gather(root 0) waits for rank 1 --query--> .
 *     rank 1  gather(root 1) waits for rank 0            '--> unexpected, another root: MISMATCH
 *
 * Lest a rank that has seen nothing of it goes on, the number of a call on its messages holds a
 * hash of the calls before it. Messages of ranks with another history meet no receive; who sees one
 * asks its sender about the last calls.
 *
 *     36         21 20        0
 *    | history     | sequence  |      number
 */

/* A channel that no lane of a plan has. */
#define MISMATCH_QUERY DISTI_CHANNELS
/* So long a call waits before it asks: much longer than ranks that call the same are apart, mostly.
 */
#define MISMATCH_QUERY_NS (100LL * 1000 * 1000)
/* Longer by so much for each rank: many may share few CPUs. */
#define MISMATCH_RANK_NS (2LL * 1000 * 1000)
/* So many calls a rank with another history is asked about. */
#define MISMATCH_ASKED 8
/* So many ranks are asked at once: each of them may need a connection for it. */
#define MISMATCH_PEERS 8
/* Instead of a rank with another history. */
enum { MISMATCH_NOBODY = -1, MISMATCH_ASKED_ALREADY = -2 };
/* Of a collective's tag what is the same for all of a group's. */
#define MISMATCH_MASK (DISTI_TAG_GROUP_MASK | UINT64_C(1) << 43)
/* The hash's high bits: a product's low ones do not depend on the high ones of its factors. */
#define MISMATCH_HISTORY_SHIFT 48
#define MISMATCH_SEQUENCE_BITS 21
#define MISMATCH_NUMBER ((UINT64_C(1) << 37) - 1)
#define MISMATCH_SEQUENCE ((UINT64_C(1) << MISMATCH_SEQUENCE_BITS) - 1)
/* What a call was that is not remembered: no collective. */
#define MISMATCH_FORGOTTEN UINT64_MAX

/* NULL: it is not remembered. */
static struct engine_called *mismatch_remembered(struct engine_calls *calls, uint64_t sequence)
{
    struct engine_called *called = &calls->called[sequence % ENGINE_CALLS_KEPT];

    return calls->next - sequence <= ENGINE_CALLS_KEPT && called->fingerprint != MISMATCH_FORGOTTEN
               ? called
               : NULL;
}

static uint64_t mismatch_number(uint64_t history, uint64_t sequence)
{
    return history >> MISMATCH_HISTORY_SHIFT << MISMATCH_SEQUENCE_BITS |
           (sequence & MISMATCH_SEQUENCE);
}

uint64_t disti_mismatch_number(const struct dist_engine *engine, uint64_t sequence)
{
    const struct engine_calls *calls = &engine->calls;
    bool noted = sequence < calls->next;

    return mismatch_number(
        noted ? calls->called[sequence % ENGINE_CALLS_KEPT].history : calls->history, sequence);
}

void disti_mismatch_skip(struct engine_calls *calls, uint64_t sequence)
{
    while (calls->next < sequence && sequence - calls->next < ENGINE_CALLS_KEPT)
        calls->called[calls->next++ % ENGINE_CALLS_KEPT].fingerprint = MISMATCH_FORGOTTEN;
}

/* The sequence in full: the tag has its low bits, and it is near the newest. */
static uint64_t mismatch_sequence(const struct engine_calls *calls, uint64_t tag)
{
    uint64_t ahead = ((tag >> DISTI_TAG_CHANNEL_BITS) - calls->next) & MISMATCH_SEQUENCE;
    bool past = ahead > MISMATCH_SEQUENCE / 4 * 3;

    return calls->next + ahead - (past ? MISMATCH_SEQUENCE + 1 : 0);
}

/* A call of this rank, as its messages have it. */
struct mismatch_call {
    uint64_t fingerprint, number;
    bool pending;
};

/* However many calls are pending, none of them is forgotten. */
static struct mismatch_call mismatch_recall(struct dist_engine *engine, uint64_t sequence)
{
    const struct engine_task *task = engine->head;
    const struct engine_called *called;

    while (task && task->call.sequence != sequence)
        task = task->next;
    if (task)
        return (struct mismatch_call){task->fingerprint, task->number, true};
    called = mismatch_remembered(&engine->calls, sequence);
    if (!called)
        return (struct mismatch_call){MISMATCH_FORGOTTEN, 0, false};
    return (struct mismatch_call){called->fingerprint, mismatch_number(called->history, sequence),
                                  false};
}

static void mismatch_find(struct engine_calls *calls, int peer, uint64_t sequence, uint64_t mine,
                          const struct dist_envelope *theirs)
{
    calls->found.peer = peer;
    calls->found.envelope.fingerprint = mine;
    calls->found.arrived = *theirs;
    calls->found_sequence = sequence;
}

/* One unexpected message. True: a query that has been answered. */
static bool mismatch_see(void *arg, int peer, const struct dist_envelope *envelope)
{
    struct dist_engine *engine = arg;
    struct engine_calls *calls = &engine->calls;
    uint64_t sequence = mismatch_sequence(calls, envelope->tag);
    uint64_t number = envelope->tag >> DISTI_TAG_CHANNEL_BITS & MISMATCH_NUMBER;
    bool query = (envelope->tag & DISTI_CHANNELS) == MISMATCH_QUERY;
    struct mismatch_call mine;

    if (calls->found.peer >= 0 || sequence >= calls->next)
        return false;
    mine = mismatch_recall(engine, sequence);
    if (mine.fingerprint == MISMATCH_FORGOTTEN && query)
        return true;
    if (mine.fingerprint != envelope->fingerprint) {
        mismatch_find(calls, peer, sequence, mine.fingerprint, envelope);
    } else if (mine.number != number) {
        if (calls->suspect == MISMATCH_NOBODY) {
            calls->suspect = peer;
            calls->suspect_sequence = sequence;
        }
    } else if (!query && !mine.pending) {
        mismatch_find(calls, peer, sequence, mine.fingerprint, envelope);
    }
    return query && calls->found.peer < 0;
}

/* The boards of this machine, on which every rank writes its calls. */
static void mismatch_look_at_node(struct dist_engine *engine)
{
    struct engine_task *task = disti_on_node_first(engine);
    struct engine_calls *calls = &engine->calls;

    if (!task || calls->found.peer >= 0 ||
        disti_node_compare(engine->node, &task->node_op) != DIST_ERR_MISMATCH)
        return;
    mismatch_find(calls, task->node_op.peer, task->node_op.sequence, task->node_op.mine,
                  &(struct dist_envelope){.fingerprint = task->node_op.theirs});
}

/* ---- asking ---- */

/* Those that have left are freed, all of them at the end. */
static void mismatch_sweep(struct dist_engine *engine, bool all)
{
    struct engine_query **at = &engine->calls.queries;

    while (*at) {
        struct engine_query *query = *at;

        if (all || query->request.status != DIST_IN_PROGRESS) {
            *at = query->next;
            free(query);
        } else {
            at = &query->next;
        }
    }
}

/* Without memory nobody is asked: then the deadline ends the call. */
static void mismatch_query(struct dist_engine *engine, int peer, uint64_t number,
                           uint64_t fingerprint)
{
    struct engine_attachment *link = &engine->links[engine->route[peer]];
    struct engine_query *query = calloc(1, sizeof(*query));

    if (!query)
        return;
    query->request.request.envelope = (struct dist_envelope){
        .tag = disti_tag_collective(engine->config->group, number, MISMATCH_QUERY),
        .fingerprint = fingerprint};
    query->next = engine->calls.queries;
    engine->calls.queries = query;
    disti_attachment_send(link, peer, &query->request);
}

/* A rank's history is another: it is to compare the last calls with its own. */
static void mismatch_ask_suspect(struct dist_engine *engine)
{
    struct engine_calls *calls = &engine->calls;
    uint64_t sequence = calls->suspect_sequence;

    for (int i = 0; i < MISMATCH_ASKED && sequence > 0; i++) {
        struct mismatch_call call = mismatch_recall(engine, --sequence);

        if (call.fingerprint != MISMATCH_FORGOTTEN)
            mismatch_query(engine, calls->suspect, call.number, call.fingerprint);
    }
    calls->suspect = MISMATCH_ASKED_ALREADY;
}

/* Asks the next few of those that it waits for, each once a call. False: that were all. */
static bool mismatch_ask_few(struct dist_engine *engine, const struct engine_task *task)
{
    struct engine_calls *calls = &engine->calls;
    int asked = 0;

    for (; calls->ask_peer < engine->config->world_size; calls->ask_peer++) {
        if (asked == MISMATCH_PEERS)
            return true;
        if (calls->ask_peer == engine->config->rank ||
            !disti_task_waits_for(engine, task, calls->ask_peer))
            continue;
        mismatch_query(engine, calls->ask_peer, task->number, task->fingerprint);
        asked++;
    }
    return false;
}

static void mismatch_ask(struct dist_engine *engine)
{
    struct engine_calls *calls = &engine->calls;
    const struct engine_task *task = engine->head;
    int64_t now = disti_now_ns(), wait_ns = MISMATCH_QUERY_NS;

    if (!task || task->state != TASK_RUNS || !engine->link_count)
        return;
    wait_ns += engine->config->world_size * MISMATCH_RANK_NS;
    if (calls->waiting != task->call.sequence + 1) {
        calls->waiting = task->call.sequence + 1;
        calls->ask_peer = 0;
        calls->ask_ns = now + wait_ns;
    }
    if (now < calls->ask_ns)
        return;
    mismatch_sweep(engine, false);
    calls->ask_ns = mismatch_ask_few(engine, task) ? now + wait_ns : INT64_MAX;
}

/* ---- looking ---- */

bool disti_mismatch_look(struct dist_engine *engine, int most)
{
    uint64_t tag = disti_tag_collective(engine->config->group, 0, 0);

    for (int i = 0; i < engine->link_count; i++) {
        struct engine_attachment *link = &engine->links[i];

        if (link->peers)
            disti_attachment_unexpected(link, tag, MISMATCH_MASK, most, mismatch_see, engine);
    }
    if (most == DISTI_MISMATCH_ALL)
        mismatch_look_at_node(engine);
    if (engine->calls.suspect >= 0)
        mismatch_ask_suspect(engine);
    return engine->calls.found.peer >= 0;
}

dist_status disti_mismatch_report(const struct dist_engine *engine)
{
    const struct engine_calls *calls = &engine->calls;

    return disti_mismatch(&calls->found, engine->config->rank, calls->found_sequence);
}

bool disti_mismatch_rest(struct dist_engine *engine)
{
    bool found = disti_mismatch_look(engine, DISTI_MISMATCH_ALL);

    if (!found)
        mismatch_ask(engine);
    return found;
}

void disti_mismatch_open(struct dist_engine *engine)
{
    engine->calls.found.peer = -1;
    engine->calls.suspect = MISMATCH_NOBODY;
}

void disti_mismatch_close(struct dist_engine *engine)
{
    mismatch_sweep(engine, true);
}
