/* SPDX-License-Identifier: BSD-3-Clause */
/* What stands on every message: which one it is, and what its call was. */
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "engine/state.h"

#include <stdio.h>
#include <stdlib.h>

/*
 *   63      44  43  42             6 5       0
 *  | group    | 0 | number          | channel  |     collectives; number: see mismatch.c
 *  | group    | 1 | 0 | line | tag (31 bits)  |     point to point; line: 2 bits
 *  | 0        | 1 | 1 | 0                     |     a failure notice, see endpoint/endpoint.c
 *
 * All groups of a world share connections. A number of 20 bits comes again after a million groups;
 * a group that has then lived since the last time is told from the new one by nothing, so the core
 * gives no such number (core/groups.c). Messages of one tag stay in order, so that a call two
 * million calls later, with the same number, is no danger.
 */
#define ENVELOPE_NUMBER ((UINT64_C(1) << 37) - 1)

uint64_t disti_tag_group(uint32_t group)
{
    return (uint64_t)group << DISTI_TAG_GROUP_SHIFT;
}

uint64_t disti_tag_collective(uint32_t group, uint64_t number, uint16_t channel)
{
    return disti_tag_group(group) | (number & ENVELOPE_NUMBER) << DISTI_TAG_CHANNEL_BITS | channel;
}

uint64_t disti_tag_p2p(uint32_t group, unsigned line, int tag)
{
    return disti_tag_group(group) | (uint64_t)1 << 43 | (uint64_t)line << 31 |
           ((unsigned)tag & DIST_TAG_MAX);
}

/* All that every rank knows of the counts: ranks that were given others must not take each other's
 * blocks for their own. */
static uint32_t envelope_count(const struct dist_call *call, int ranks)
{
    switch (call->collective) {
    case DIST_COLL_ALL_GATHER_V:
        return disti_hash_counts(call->out_counts, ranks);
    case DIST_COLL_REDUCE_SCATTER_V:
        return disti_hash_counts(call->in_counts, ranks);
    default:
        if (disti_collective_uneven(call->collective) || disti_collective_pair(call->collective))
            return 0; /* the message's length tells */
        return (uint32_t)call->count;
    }
}

/*
 *   63        59 58     54 53  50 49      32 31            0
 *  | collective | dtype   | op   | root     | count mod 2^32 |
 *
 * What does not matter to the collective is 0. SEND and RECV meet each other: both are SEND. A call
 * that is part of a list of buffers has no root, but the list's hash.
 */
uint64_t disti_fingerprint(const struct dist_call *call, int ranks)
{
    bool pair = disti_collective_pair(call->collective);
    uint64_t collective = pair ? DIST_COLL_SEND : call->collective;
    uint64_t dtype = call->collective == DIST_COLL_BARRIER ? 0 : call->dtype;
    uint64_t op = disti_algorithm_reduces(call->collective) ? call->op : 0;
    uint64_t root = disti_collective_rooted(call->collective) ? (unsigned)call->root : 0;

    if (call->list)
        root = call->list | 1; /* a part of a list: which is told apart from none */
    return collective << 59 | dtype << 54 | op << 50 | (root & 0x3ffff) << 32 |
           envelope_count(call, ranks);
}

/* Root and count are free there: a 1, and the count in 49 bits. */
#define ENVELOPE_ANNOUNCES ((uint64_t)1 << 49)

uint64_t disti_announce(uint64_t fingerprint, size_t count)
{
    return fingerprint | ENVELOPE_ANNOUNCES | (count & (ENVELOPE_ANNOUNCES - 1));
}

static dist_dtype envelope_dtype(uint64_t fingerprint)
{
    return (dist_dtype)(fingerprint >> 54 & 0x1f);
}

/* Is the call part of a list of buffers? */
static bool envelope_is_list(uint64_t fingerprint)
{
    return fingerprint >> 59 == DIST_COLL_ALL_REDUCE && (fingerprint >> 32 & 0x3ffff);
}

void disti_fingerprint_text(uint64_t fingerprint, char *text, size_t size)
{
    dist_collective collective = (dist_collective)(fingerprint >> 59);
    char count[24] = "", op[24] = "", root[24] = "";

    if (collective >= DIST_COLL_COUNT) {
        snprintf(text, size, "an unknown operation");
        return;
    }
    if (!disti_collective_uneven(collective))
        snprintf(count, sizeof(count), "count %u, ", (unsigned)(uint32_t)fingerprint);
    if (disti_algorithm_reduces(collective))
        snprintf(op, sizeof(op), ", %s", dist_op_string((dist_op)(fingerprint >> 50 & 0xf)));
    if (disti_collective_rooted(collective))
        snprintf(root, sizeof(root), ", root %u", (unsigned)(fingerprint >> 32 & 0x3ffff));
    if (collective == DIST_COLL_BARRIER)
        snprintf(text, size, "%s", dist_collective_string(collective));
    else
        snprintf(text, size, "%s%s(%s%s%s%s)", dist_collective_string(collective),
                 envelope_is_list(fingerprint) ? "_coalesced" : "", count,
                 dist_dtype_string(envelope_dtype(fingerprint)), op, root);
}

/* The same call as far as its words go: then what differs is the counts. */
static bool envelope_same_words(uint64_t a, uint64_t b)
{
    if (envelope_is_list(a) && envelope_is_list(b))
        return a >> 50 == b >> 50 && (uint32_t)a == (uint32_t)b;
    return a >> 32 == b >> 32 && disti_collective_uneven((dist_collective)(a >> 59));
}

static bool envelope_is_p2p(uint64_t fingerprint)
{
    return fingerprint >> 59 == DIST_COLL_SEND;
}

static unsigned long long envelope_elements(const struct dist_envelope *envelope)
{
    uint64_t fingerprint = envelope->fingerprint;
    size_t element_bytes = dist_dtype_size(envelope_dtype(fingerprint));

    if (envelope_is_p2p(fingerprint) && (fingerprint & ENVELOPE_ANNOUNCES))
        return fingerprint & (ENVELOPE_ANNOUNCES - 1);
    return envelope->bytes / (element_bytes ? element_bytes : 1);
}

unsigned long long disti_message_bytes(const struct dist_envelope *envelope)
{
    return envelope_elements(envelope) * dist_dtype_size(envelope_dtype(envelope->fingerprint));
}

dist_status disti_mismatch(const struct dist_request *request, int rank, uint64_t sequence)
{
    const struct dist_envelope *mine = &request->envelope, *theirs = &request->arrived;
    unsigned long long operation = sequence;
    char called[128], other[128];

    if (envelope_is_p2p(mine->fingerprint))
        return disti_fail(
            DIST_ERR_MISMATCH,
            "rank %d receives %llu x %s with tag %u from rank %d, which sent %llu x %s: "
            "send and receive the same count and dtype, or use another tag",
            rank, envelope_elements(mine), dist_dtype_string(envelope_dtype(mine->fingerprint)),
            (unsigned)(mine->tag & DIST_TAG_MAX), request->peer, envelope_elements(theirs),
            dist_dtype_string(envelope_dtype(theirs->fingerprint)));
    disti_fingerprint_text(mine->fingerprint, called, sizeof(called));
    disti_fingerprint_text(theirs->fingerprint, other, sizeof(other));
    if (mine->fingerprint == theirs->fingerprint)
        return disti_fail(DIST_ERR_MISMATCH,
                          "rank %d expects %llu elements from rank %d in %s, operation %llu, but "
                          "rank %d sent %llu: pass the same counts on both ranks",
                          rank, envelope_elements(mine), request->peer, called, operation,
                          request->peer, envelope_elements(theirs));
    return disti_fail(DIST_ERR_MISMATCH,
                      "rank %d called %s as operation %llu, but rank %d called %s%s: make every "
                      "rank call the same collectives with the same arguments in the same order",
                      rank, called, operation, request->peer, other,
                      envelope_same_words(mine->fingerprint, theirs->fingerprint)
                          ? " with different counts"
                          : "");
}

/* Finds ranks that called different things, also where no two of their messages meet. */

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
    called = &engine->calls.called[sequence % ENGINE_CALLS_KEPT];
    if (engine->calls.next - sequence > ENGINE_CALLS_KEPT ||
        called->fingerprint == MISMATCH_FORGOTTEN)
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
    if (most == DISTI_MISMATCH_ALL) {
        /* The boards of this machine, on which every rank writes its calls. */
        struct engine_task *task = disti_on_node_first(engine);
        struct engine_calls *calls = &engine->calls;

        if (task && calls->found.peer < 0 &&
            disti_node_compare(engine->node, &task->node_op) == DIST_ERR_MISMATCH)
            mismatch_find(calls, task->node_op.peer, task->node_op.sequence, task->node_op.mine,
                          &(struct dist_envelope){.fingerprint = task->node_op.theirs});
    }
    if (engine->calls.suspect >= 0) {
        /* A rank's history is another: it is to compare the last calls with its own. */
        struct engine_calls *calls = &engine->calls;
        uint64_t sequence = calls->suspect_sequence;
        for (int i = 0; i < MISMATCH_ASKED && sequence > 0; i++) {
            struct mismatch_call call = mismatch_recall(engine, --sequence);
            if (call.fingerprint != MISMATCH_FORGOTTEN)
                mismatch_query(engine, calls->suspect, call.number, call.fingerprint);
        }
        calls->suspect = MISMATCH_ASKED_ALREADY;
    }
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
