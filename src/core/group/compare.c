/* SPDX-License-Identifier: BSD-3-Clause */
/* Compares what the ranks called as they leave a group. */
#include "base/collective.h"
#include "base/hash.h"
#include "core/group/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * A call in which no rank waited for another ends well even if the ranks called different things,
 * for instance broadcasts from two roots. A later call that waits finds that. If there is none, the
 * ranks find it here:
 *
 *   leave      all ranks exchange a summary: a hash of their last calls
 *   details    only if summaries differ: all ranks exchange their last calls
 */
#define COMPARE_CALLS 1024
#define COMPARE_DETAILS 64

struct compare_call {
    uint64_t what, count, sequence;
};

struct compare_details {
    struct compare_call calls[COMPARE_DETAILS]; /* by sequence */
};

/* Only what is the same on all ranks. False: the call is not recorded. */
static bool compare_recall(struct dist_group *group, uint64_t sequence, struct compare_call *call_p)
{
    const struct disti_flight_entry *entry = disti_flight_entry(&group->flight.calls, sequence);
    uint64_t what = atomic_load_explicit(&entry->what, memory_order_relaxed);
    const dist_collective collective = (dist_collective)(what >> 32 & 0xff);

    if (atomic_load_explicit(&entry->sequence, memory_order_relaxed) != sequence ||
        what >> 56 == DISTI_FLIGHT_NONE)
        return false;
    what &= UINT64_MAX >> 8;
    if (!disti_algorithm_reduces(collective))
        what &= ~(UINT64_C(0xff) << 48);
    if (collective == DIST_COLL_BARRIER)
        what &= ~(UINT64_C(0xff) << 40);
    if (!disti_collective_rooted(collective))
        what &= ~UINT64_C(0xffffffff);
    call_p->what = what;
    call_p->count = disti_collective_uneven(collective)
                        ? 0
                        : atomic_load_explicit(&entry->count, memory_order_relaxed);
    call_p->sequence = sequence;
    return true;
}

/* Returns how many of the last calls are recorded: none with DIST_FLIGHT=0. */
static uint64_t compare_kept(const struct dist_group *group)
{
    const struct disti_flight_ring *calls = &group->flight.calls;

    return atomic_load(&calls->entries) == &group->flight.none ? 0 : calls->mask + 1;
}

void disti_compare_summarize(struct dist_group *group, struct disti_summary *summary_p)
{
    const uint64_t kept = compare_kept(group);
    const uint64_t window = kept < COMPARE_CALLS ? kept : COMPARE_CALLS;
    uint64_t hash = DISTI_HASH_START;
    struct compare_call call;

    for (uint64_t s = group->sequence < window ? 0 : group->sequence - window; s < group->sequence;
         s++) {
        if (compare_recall(group, s, &call))
            hash = disti_hash_call(disti_hash_call(hash, call.what), call.count);
    }
    *summary_p = (struct disti_summary){.calls = group->sequence, .kept = kept, .hash = hash};
}

bool disti_compare_same(const struct disti_summary *all, int ranks)
{
    bool same = true;

    for (int r = 0; r < ranks; r++)
        same = same && all[r].calls == all[0].calls &&
               (all[r].hash == all[0].hash || all[r].kept != all[0].kept);
    return same;
}

/* ---- details ---- */

static void compare_fill(struct dist_group *group, struct compare_details *details)
{
    uint64_t s = group->sequence < COMPARE_DETAILS ? 0 : group->sequence - COMPARE_DETAILS;

    for (int i = 0; i < COMPARE_DETAILS; i++)
        details->calls[i].sequence = UINT64_MAX;
    for (; compare_kept(group) > 0 && s < group->sequence; s++)
        compare_recall(group, s, &details->calls[s % COMPARE_DETAILS]);
}

static const struct compare_call *compare_find(const struct compare_details *details,
                                               uint64_t sequence)
{
    const struct compare_call *call = &details->calls[sequence % COMPARE_DETAILS];

    return call->sequence == sequence ? call : NULL;
}

/* The first call that rank 0 and another rank do not have in common. False: none is recorded. */
static bool compare_first(const struct compare_details *all, int ranks, uint64_t from, uint64_t to,
                          uint64_t *sequence_p, int *rank_p)
{
    for (uint64_t s = from; s < to; s++) {
        const struct compare_call *first = compare_find(&all[0], s);

        for (int r = 1; r < ranks; r++) {
            const struct compare_call *other = compare_find(&all[r], s);

            if (!first && !other)
                continue;
            *sequence_p = s;
            *rank_p = r;
            if (!first || !other || first->what != other->what || first->count != other->count)
                return true;
        }
    }
    return false;
}

/* "called broadcast(count 5, float32, root 1)" */
static void compare_name(const struct compare_call *call, char *text, size_t size)
{
    const dist_collective collective = call ? (dist_collective)(call->what >> 32 & 0xff) : 0;
    size_t used;

    if (!call) {
        disti_text(text, size, "called nothing");
        return;
    }
    used = disti_text(text, size, "called %s", dist_collective_string(collective));
    if (collective == DIST_COLL_BARRIER)
        return;
    used += disti_text(text + used, size - used, "(");
    if (!disti_collective_uneven(collective))
        used +=
            disti_text(text + used, size - used, "count %llu, ", (unsigned long long)call->count);
    used += disti_text(text + used, size - used, "%s",
                       dist_dtype_string((dist_dtype)(call->what >> 40 & 0xff)));
    if (disti_algorithm_reduces(collective))
        used += disti_text(text + used, size - used, ", %s",
                           dist_op_string((dist_op)(call->what >> 48 & 0xff)));
    if (disti_collective_rooted(collective))
        used += disti_text(text + used, size - used, ", root %d", (int)(uint32_t)call->what);
    disti_text(text + used, size - used, ")");
}

/* All ranks make the same sentence of the same data. */
static dist_status compare_report(const struct dist_group *group, const struct disti_summary *sums,
                                  const struct compare_details *all)
{
    char name[GROUP_NAME], first[128], other[128];
    uint64_t most = 0, sequence;
    int rank;

    for (int r = 0; r < group->world_size; r++)
        most = sums[r].calls > most ? sums[r].calls : most;
    disti_group_name(group, name);
    if (!compare_first(all, group->world_size, most < COMPARE_DETAILS ? 0 : most - COMPARE_DETAILS,
                       most, &sequence, &rank))
        return disti_fail(DIST_ERR_MISMATCH,
                          "%s, dist_destroy_process_group: the ranks called different collectives, "
                          "more than %d calls ago or not recorded (DIST_FLIGHT=0): make every rank "
                          "call the same collectives with "
                          "the same arguments in the same order",
                          name, COMPARE_DETAILS);
    compare_name(compare_find(&all[0], sequence), first, sizeof(first));
    compare_name(compare_find(&all[rank], sequence), other, sizeof(other));
    return disti_fail(
        DIST_ERR_MISMATCH,
        "%s, dist_destroy_process_group: rank 0 %s as operation %llu, but rank %d %s: "
        "make every rank call the same collectives with the same arguments in the "
        "same order",
        name, first, (unsigned long long)sequence, rank, other);
}

dist_status disti_compare_explain(struct dist_group *group, const struct disti_summary *sums,
                                  int timeout_ms)
{
    struct disti_party party = disti_group_party(group);
    struct compare_details *all = calloc((size_t)group->world_size + 1, sizeof(*all));
    struct compare_details *own = all ? &all[group->world_size] : NULL;
    dist_status status = DIST_ERR_NO_MEMORY;
    char key[64];

    party.what = "for the calls of the others";
    snprintf(key, sizeof(key), "dist/calls/%u", group->number);
    if (own)
        compare_fill(group, own);
    if (own)
        status = disti_store_all_gather(group->world->bootstrap.store, &party, key, own, all,
                                        sizeof(*own), timeout_ms);
    if (status == DIST_OK)
        status = compare_report(group, sums, all);
    else
        status =
            disti_fail(DIST_ERR_MISMATCH,
                       "%s, dist_destroy_process_group: the ranks called different collectives "
                       "and exchange no details: make every rank call the same in the same order",
                       disti_group_name(group, (char[GROUP_NAME]){0}));
    free(all);
    return status;
}
