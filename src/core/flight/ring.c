/* SPDX-License-Identifier: BSD-3-Clause */
/* Rings of calls: an entry is found by the call's sequence. */
#include "base/clock.h"
#include "base/collective.h"
#include "base/settings/config.h"
#include "core/flight/flight.h"

#include <stdlib.h>

#define RING_CALLS 1024
#define RING_MOST (1 << 20)

static uint64_t ring_round_up(uint64_t calls)
{
    uint64_t entries = 1;

    while (entries < calls)
        entries *= 2;
    return entries;
}

dist_status disti_flight_open(struct disti_flight *flight)
{
    dist_status status;
    int calls;

    atomic_init(&flight->calls.entries, &flight->none);
    atomic_init(&flight->messages.entries, &flight->none);
    status = disti_env_int("DIST_FLIGHT", 0, RING_MOST, RING_CALLS, &calls);
    flight->off = status == DIST_OK && calls == 0;
    return status;
}

static struct disti_flight_ring *ring_of(struct disti_flight *flight, const struct dist_call *call)
{
    return disti_collective_pair(call->collective) ? &flight->messages : &flight->calls;
}

/* The clean pages of a new one take no memory until they are written to. Without memory, as with
 * DIST_FLIGHT=0, nothing is recorded. */
static void ring_make(struct disti_flight *flight, struct disti_flight_ring *ring)
{
    struct disti_flight_entry *entries;
    uint64_t count;
    int calls;

    if (flight->off || atomic_load_explicit(&ring->entries, memory_order_relaxed) != &flight->none)
        return;
    if (disti_env_int("DIST_FLIGHT", 0, RING_MOST, RING_CALLS, &calls) != DIST_OK)
        calls = 0;
    count = ring_round_up((uint64_t)calls);
    entries = calls ? calloc(count, sizeof(*entries)) : NULL;
    flight->off = !entries;
    if (!entries)
        return;
    ring->mask = count - 1;
    atomic_store_explicit(&ring->entries, entries, memory_order_release);
}

void disti_flight_begin(struct disti_flight *flight, const struct dist_call *call, const char *name)
{
    struct disti_flight_ring *ring = ring_of(flight, call);
    struct disti_flight_entry *entry;

    ring_make(flight, ring);
    entry = disti_flight_entry(ring, call->sequence);
    atomic_store_explicit(&entry->what, DISTI_FLIGHT_NONE, memory_order_relaxed);
    atomic_store_explicit(&entry->count, call->count, memory_order_relaxed);
    atomic_store_explicit(&entry->sequence, call->sequence, memory_order_relaxed);
    atomic_store_explicit(&entry->begun_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->ended_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->name, name, memory_order_relaxed);
    atomic_store_explicit(&entry->tag, call->tag, memory_order_relaxed);
    atomic_store_explicit(&entry->status, DIST_OK, memory_order_relaxed);
    atomic_store_explicit(&entry->what, disti_flight_what(call, DISTI_FLIGHT_BEGUN),
                          memory_order_release);
}

/* NULL: so many calls later another one stands there. */
static struct disti_flight_entry *ring_find(struct disti_flight *flight,
                                            const struct dist_call *call)
{
    struct disti_flight_entry *entry = disti_flight_entry(ring_of(flight, call), call->sequence);

    return atomic_load_explicit(&entry->sequence, memory_order_relaxed) == call->sequence ? entry
                                                                                          : NULL;
}

void disti_flight_go(struct disti_flight *flight, const struct dist_call *call,
                     enum disti_flight_state state, int64_t now_ns)
{
    struct disti_flight_entry *entry = ring_find(flight, call);

    if (!entry)
        return;
    atomic_store_explicit(&entry->what, disti_flight_what(call, state), memory_order_relaxed);
    atomic_store_explicit(state == DISTI_FLIGHT_WAITING ? &entry->begun_ns : &entry->ended_ns,
                          now_ns, memory_order_relaxed);
}

void disti_flight_end(struct disti_flight *flight, const struct dist_call *call, dist_status status)
{
    struct disti_flight_entry *entry = ring_find(flight, call);

    if (!entry)
        return;
    atomic_store_explicit(&entry->status, status, memory_order_relaxed);
    disti_flight_go(flight, call, status == DIST_OK ? DISTI_FLIGHT_DONE : DISTI_FLIGHT_FAILED,
                    disti_now_ns());
}

static void ring_free(struct disti_flight *flight, struct disti_flight_ring *ring)
{
    struct disti_flight_entry *entries = atomic_load(&ring->entries);

    ring->mask = 0;
    atomic_store(&ring->entries, &flight->none);
    if (entries != &flight->none)
        free(entries);
}

void disti_flight_free(struct disti_flight *flight)
{
    ring_free(flight, &flight->calls);
    ring_free(flight, &flight->messages);
    free(atomic_exchange(&flight->waits_for, NULL));
}
