/* SPDX-License-Identifier: BSD-3-Clause */
/* What stands on every message: which one it is, and what its call was. */
#include "base/hash.h"
#include "base/log.h"
#include "engine/state.h"

#include <stdio.h>

/*
 *   63      44  43  42             6 5       0
 *  | group    | 0 | number          | channel  |     collectives; number: see mismatch.c
 *  | group    | 1 | 0 | line | tag (31 bits)  |     point to point; line: 2 bits
 *  | 0        | 1 | 1 | 0                     |     a failure notice, see endpoint/notices.c
 *
 * All groups of a world share connections. A number of 20 bits comes again after a million groups;
 * a group that has then lived since the last time is told from the new one by nothing, so the core
 * gives no such number (core/group/agree.c). Messages of one tag stay in order, so that a call two
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
        snprintf(text, size, "something unknown");
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

static dist_status envelope_mismatch_p2p(const struct dist_request *request, int rank)
{
    const struct dist_envelope *mine = &request->envelope, *theirs = &request->arrived;

    return disti_fail(
        DIST_ERR_MISMATCH,
        "rank %d receives %llu x %s with tag %u from rank %d, which sent %llu x %s: "
        "send and receive the same count and dtype, or use another tag",
        rank, envelope_elements(mine), dist_dtype_string(envelope_dtype(mine->fingerprint)),
        (unsigned)(mine->tag & DIST_TAG_MAX), request->peer, envelope_elements(theirs),
        dist_dtype_string(envelope_dtype(theirs->fingerprint)));
}

dist_status disti_mismatch(const struct dist_request *request, int rank, uint64_t sequence)
{
    const struct dist_envelope *mine = &request->envelope, *theirs = &request->arrived;
    unsigned long long operation = sequence;
    char called[128], other[128];

    if (envelope_is_p2p(mine->fingerprint))
        return envelope_mismatch_p2p(request, rank);
    disti_fingerprint_text(mine->fingerprint, called, sizeof(called));
    disti_fingerprint_text(theirs->fingerprint, other, sizeof(other));
    if (mine->fingerprint == theirs->fingerprint)
        return disti_fail(DIST_ERR_MISMATCH,
                          "rank %d expects %llu elements from rank %d in %s, operation %llu, but "
                          "rank %d sent %llu: give both ranks the same counts",
                          rank, envelope_elements(mine), request->peer, called, operation,
                          request->peer, envelope_elements(theirs));
    return disti_fail(
        DIST_ERR_MISMATCH,
        "rank %d called %s as operation %llu, but rank %d called %s%s: make every "
        "rank call the same collectives with the same arguments in the same order",
        rank, called, operation, request->peer, other,
        envelope_same_words(mine->fingerprint, theirs->fingerprint) ? " with other counts" : "");
}
