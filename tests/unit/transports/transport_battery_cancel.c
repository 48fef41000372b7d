/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases of the battery about cancel: the messages of one group are canceled, those of another group
 * continue. */
#include "base/clock.h"
#include "transport_battery_rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The group is in the upper bits of a tag, as in the engine. */
#define CANCEL_MASK (~UINT64_C(0) << 44)
#define CANCEL_FIRST (UINT64_C(5) << 44)
#define CANCEL_SECOND (UINT64_C(6) << 44)

#define CANCEL_POISON 0xa5
#define CANCEL_LATE_MS 20
#define CANCEL_SILENT_MS 600
#define CANCEL_BURST 12

/* Selects the requests of each message that are posted before it is canceled. */
enum cancel_halves { CANCEL_SENDS = 1, CANCEL_RECEIVES = 2, CANCEL_BOTH = 3 };

/* A message to the next rank, and one from the previous rank. */
struct cancel_ring {
    unsigned char *out, *in;
    struct dist_request send, receive;
};

static int cancel_next(const struct battery_rank *rank)
{
    return (rank->rank + 1) % rank->ranks;
}

static int cancel_previous(const struct battery_rank *rank)
{
    return (rank->rank + rank->ranks - 1) % rank->ranks;
}

static void ring_make(struct cancel_ring *ring, size_t bytes)
{
    memset(ring, 0, sizeof(*ring));
    ring->out = battery_alloc(bytes);
    ring->in = battery_alloc(bytes);
}

static void ring_free(struct cancel_ring *ring)
{
    free(ring->out);
    free(ring->in);
}

static void ring_start(struct battery_rank *rank, struct cancel_ring *ring, uint64_t tag,
                       size_t bytes, enum cancel_halves halves)
{
    battery_fill(ring->out, bytes, rank->rank, cancel_next(rank), tag);
    if (halves & CANCEL_RECEIVES)
        battery_recv(rank, &ring->receive, cancel_previous(rank), tag, ring->in, bytes);
    if (halves & CANCEL_SENDS)
        battery_send(rank, &ring->send, cancel_next(rank), tag, ring->out, bytes);
}

static bool ring_end(struct battery_rank *rank, struct cancel_ring *ring, uint64_t tag,
                     size_t bytes)
{
    return battery_wait_ok(rank, &ring->receive, 1) && battery_wait_ok(rank, &ring->send, 1) &&
           battery_check(rank, ring->in, bytes, cancel_previous(rank), rank->rank, tag);
}

/* Cancels the ring's messages and overwrites its memory, which belongs to the program again. */
static bool ring_cancel(struct battery_rank *rank, struct cancel_ring *ring, uint64_t tag,
                        size_t bytes)
{
    bool whole = true;

    rank->transport->cancel(rank->state, CANCEL_FIRST, CANCEL_MASK);
    if (ring->receive.envelope.tag && ring->receive.status == DIST_OK)
        whole = battery_check(rank, ring->in, bytes, cancel_previous(rank), rank->rank, tag);
    memset(&ring->send, CANCEL_POISON, sizeof(ring->send));
    memset(&ring->receive, CANCEL_POISON, sizeof(ring->receive));
    memset(ring->out, CANCEL_POISON, bytes);
    memset(ring->in, CANCEL_POISON, bytes);
    return whole;
}

static bool is_poison(const void *memory, size_t bytes)
{
    const unsigned char *at = memory;

    for (size_t i = 0; i < bytes; i++) {
        if (at[i] != CANCEL_POISON)
            return false;
    }
    return true;
}

static bool ring_is_untouched(struct battery_rank *rank, const struct cancel_ring *ring,
                              size_t bytes)
{
    return battery_expect(rank,
                          is_poison(&ring->send, sizeof(ring->send)) &&
                              is_poison(&ring->receive, sizeof(ring->receive)),
                          "a request was written after cancel, %zu bytes", bytes) &&
           battery_expect(rank, is_poison(ring->out, bytes) && is_poison(ring->in, bytes),
                          "memory was written after cancel, %zu bytes", bytes);
}

/* Both ends have canceled. Messages that were in transit have arrived now and are canceled too. */
static bool ring_cancel_late(struct battery_rank *rank)
{
    bool ok = battery_meet(rank);

    battery_progress_ms(rank, CANCEL_LATE_MS);
    rank->transport->cancel(rank->state, CANCEL_FIRST, CANCEL_MASK);
    return ok && battery_meet(rank);
}

static void cancel_progress(struct battery_rank *rank, int steps)
{
    for (int i = 0; i < steps; i++)
        rank->transport->progress(rank->state);
    if (rank->rank % 2)
        battery_progress_ms(rank, CANCEL_LATE_MS);
}

/* Cancels one group after `steps` calls of progress while another group continues. Then reuses the
 * tags of the canceled group. */
static bool cancel_round(struct battery_rank *rank, size_t bytes, enum cancel_halves halves,
                         int steps)
{
    struct cancel_ring canceled, other, again;
    bool ok;

    ring_make(&canceled, bytes);
    ring_make(&other, bytes);
    ring_make(&again, bytes);
    ring_start(rank, &canceled, CANCEL_FIRST + 1, bytes, halves);
    ring_start(rank, &other, CANCEL_SECOND + 1, bytes, CANCEL_BOTH);
    cancel_progress(rank, steps);
    ok = ring_cancel(rank, &canceled, CANCEL_FIRST + 1, bytes) &&
         ring_end(rank, &other, CANCEL_SECOND + 1, bytes) && ring_cancel_late(rank);
    if (ok)
        ring_start(rank, &again, CANCEL_FIRST + 1, bytes, CANCEL_BOTH);
    ok = ok && ring_end(rank, &again, CANCEL_FIRST + 1, bytes) && battery_meet(rank) &&
         ring_is_untouched(rank, &canceled, bytes);
    if (ok) { /* otherwise a request may be in progress */
        ring_free(&canceled);
        ring_free(&other);
        ring_free(&again);
    }
    return ok;
}

/* Tests each size with one number of steps, which differs between the three values of halves; if
 * CHECK_LONG is set, with every number of steps. */
static bool cancel_sizes(struct battery_rank *rank, enum cancel_halves halves)
{
    static const size_t sizes[] = {0, 8, 4000, 70000, (size_t)1 << 20, (size_t)5 << 20};
    static const int steps[] = {0, 3, 40};
    bool all = getenv("CHECK_LONG"), ok = true;

    if (!rank->transport->cancel)
        return true;
    for (size_t s = 0; ok && s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (size_t i = 0; ok && i < sizeof(steps) / sizeof(steps[0]); i++) {
            if (all || i == (s + halves) % 3)
                ok = cancel_round(rank, sizes[s], halves, steps[i]);
        }
    }
    return ok;
}

static bool cancel_sends(struct battery_rank *rank)
{
    return cancel_sizes(rank, CANCEL_SENDS);
}

static bool cancel_receives(struct battery_rank *rank)
{
    return cancel_sizes(rank, CANCEL_RECEIVES);
}

static bool cancel_halfway(struct battery_rank *rank)
{
    return cancel_sizes(rank, CANCEL_BOTH);
}

/* Only rank 0 cancels. The next rank receives its message completely or not at all, and later
 * messages continue. */
static bool cancel_one_side(struct battery_rank *rank)
{
    size_t bytes = (size_t)5 << 20;
    struct cancel_ring canceled, other;
    bool ok = true;

    if (!rank->transport->cancel)
        return true;
    ring_make(&canceled, bytes);
    ring_make(&other, bytes);
    ring_start(rank, &canceled, CANCEL_FIRST + 1, bytes, CANCEL_BOTH);
    cancel_progress(rank, 3);
    if (rank->rank == 0)
        ok = ring_cancel(rank, &canceled, CANCEL_FIRST + 1, bytes);
    ring_start(rank, &other, CANCEL_SECOND + 1, bytes, CANCEL_BOTH);
    ok = ok && ring_end(rank, &other, CANCEL_SECOND + 1, bytes) && battery_meet(rank);
    ok = ok && (rank->rank == 0 ? ring_is_untouched(rank, &canceled, bytes)
                                : ring_cancel(rank, &canceled, CANCEL_FIRST + 1, bytes));
    ok = ok && ring_cancel_late(rank) && ring_is_untouched(rank, &canceled, bytes);
    if (ok) {
        ring_free(&canceled);
        ring_free(&other);
    }
    return ok;
}

/* The last rank makes no calls while the other ranks cancel their sends to it. They may reuse the
 * memory in any case. Whether the silent rank is treated as lost is up to the transport. */
static bool cancel_silent_sizes(struct battery_rank *rank, size_t bytes)
{
    struct cancel_ring rings[CANCEL_BURST];
    bool ok = battery_meet(rank);

    for (int i = 0; i < CANCEL_BURST; i++) {
        ring_make(&rings[i], bytes);
        if (rank->rank < rank->ranks - 1)
            ring_start(rank, &rings[i], CANCEL_FIRST + 1, bytes, CANCEL_BOTH);
    }
    if (rank->rank == rank->ranks - 1)
        disti_sleep_ns(CANCEL_SILENT_MS * INT64_C(1000000));
    else
        cancel_progress(rank, 10);
    for (int i = 0; ok && i < CANCEL_BURST; i++)
        ok = ring_cancel(rank, &rings[i], CANCEL_FIRST + 1, bytes);
    ok = ring_cancel_late(rank) && ok;
    for (int i = 0; ok && i < CANCEL_BURST; i++) {
        ok = ring_is_untouched(rank, &rings[i], bytes);
        ring_free(&rings[i]);
    }
    return ok;
}

static bool cancel_silent(struct battery_rank *rank)
{
    return !rank->transport->cancel || (cancel_silent_sizes(rank, (size_t)900 * 1024) &&
                                        cancel_silent_sizes(rank, (size_t)5 << 20));
}

const struct battery_case battery_cancel_cases[] = {
    {.name = "cancel_sends", .run = cancel_sends, .opened = true},
    {.name = "cancel_receives", .run = cancel_receives, .opened = true},
    {.name = "cancel_halfway", .run = cancel_halfway, .opened = true},
    {.name = "cancel_one_side", .run = cancel_one_side, .opened = true},
    {.name = "cancel_silent", .run = cancel_silent, .opened = true},
    {.name = NULL},
};
