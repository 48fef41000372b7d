/* SPDX-License-Identifier: BSD-3-Clause */
/* The battery's cases about messages whose sender the receiver does not know beforehand. */
#include "base/clock.h"
#include "transport_battery_rank.h"

#include <stdlib.h>

#define PROBE_TAG 5
#define PROBE_OTHER_TAG 6
#define PROBE_WAIT_MS 60000

static const size_t probe_sizes[] = {0, 70000, 8, 3000000, 5000};
enum { PROBE_MESSAGES = sizeof(probe_sizes) / sizeof(probe_sizes[0]) };

/* Every sender has an order of its own; the receiver knows it. */
static size_t probe_bytes(int from, int i)
{
    return probe_sizes[(from + i) % PROBE_MESSAGES];
}

/* Asks twice, since asking changes nothing. */
static bool probe_ask(struct battery_rank *rank, uint64_t tag, int *peer_p)
{
    int peer = rank->transport->probe_tag(rank->state, tag);

    *peer_p = peer;
    return battery_expect(rank, peer >= -1 && peer < rank->ranks && peer != rank->rank,
                          "tag %d is said to wait from rank %d", (int)tag, peer) &&
           battery_expect(rank, rank->transport->probe_tag(rank->state, tag) == peer,
                          "the second look at tag %d gives another rank than %d", (int)tag, peer);
}

static bool probe_nothing(struct battery_rank *rank, uint64_t tag)
{
    int peer;

    return probe_ask(rank, tag, &peer) &&
           battery_expect(rank, peer == -1, "rank %d has nothing with tag %d", peer, (int)tag);
}

/* Waits until somebody has sent something with this tag. */
static bool probe_await(struct battery_rank *rank, uint64_t tag, int *peer_p)
{
    int64_t deadline = disti_deadline_ms(PROBE_WAIT_MS);

    while (probe_ask(rank, tag, peer_p)) {
        if (*peer_p >= 0)
            return true;
        if (!battery_expect(rank, !disti_expired(deadline), "nothing with tag %d comes", (int)tag))
            return false;
        battery_linger(rank, 1);
    }
    return false;
}

static bool probe_send_all(struct battery_rank *rank, int to)
{
    struct dist_request sends[PROBE_MESSAGES];
    unsigned char *out[PROBE_MESSAGES];
    bool ok;

    for (int i = 0; i < PROBE_MESSAGES; i++) {
        size_t bytes = probe_bytes(rank->rank, i);

        out[i] = battery_alloc(bytes);
        battery_fill(out[i], bytes, rank->rank, to, (uint64_t)i);
        battery_send(rank, &sends[i], to, PROBE_TAG, out[i], bytes);
    }
    ok = battery_meet(rank) && battery_wait_ok(rank, sends, PROBE_MESSAGES);
    for (int i = 0; i < PROBE_MESSAGES; i++)
        free(out[i]);
    return ok;
}

/* What the receiver has taken from one peer. */
struct probe_inbox {
    struct dist_request receives[PROBE_MESSAGES];
    unsigned char *in[PROBE_MESSAGES];
    int count;
};

/* Takes the message that was found; with `wait` it is there before the next one is looked for. */
static bool probe_take(struct battery_rank *rank, struct probe_inbox *inbox, int peer, bool wait)
{
    int i = inbox->count;
    size_t bytes = probe_bytes(peer, i);

    if (!battery_expect(rank, i < PROBE_MESSAGES, "rank %d has more than it sent", peer))
        return false;
    inbox->in[i] = battery_alloc(bytes);
    battery_recv(rank, &inbox->receives[i], peer, PROBE_TAG, inbox->in[i], bytes);
    inbox->count++;
    return !wait || battery_wait_ok(rank, &inbox->receives[i], 1);
}

static bool probe_check(struct battery_rank *rank, const struct probe_inbox *inbox, int peer)
{
    bool ok = battery_expect(rank, inbox->count == PROBE_MESSAGES, "%d messages of rank %d",
                             inbox->count, peer);

    for (int i = 0; ok && i < PROBE_MESSAGES; i++)
        ok = battery_wait_ok(rank, (struct dist_request *)(uintptr_t)&inbox->receives[i], 1) &&
             battery_check(rank, inbox->in[i], probe_bytes(peer, i), peer, rank->rank, (uint64_t)i);
    return ok;
}

static bool probe_receive_all(struct battery_rank *rank, bool wait)
{
    struct probe_inbox *inboxes = battery_alloc(sizeof(*inboxes) * (size_t)rank->ranks);
    int total = PROBE_MESSAGES * (rank->ranks - 1), peer;
    bool ok = probe_nothing(rank, PROBE_OTHER_TAG) && battery_meet(rank);

    while (ok && total-- > 0)
        ok = probe_await(rank, PROBE_TAG, &peer) && probe_take(rank, &inboxes[peer], peer, wait);
    ok = ok && probe_nothing(rank, PROBE_TAG);
    for (peer = 0; peer < rank->ranks; peer++) {
        ok = ok && (peer == rank->rank || probe_check(rank, &inboxes[peer], peer));
        for (int i = 0; i < inboxes[peer].count; i++)
            free(inboxes[peer].in[i]);
    }
    free(inboxes);
    return ok && probe_nothing(rank, PROBE_TAG);
}

/* Everybody sends to the first rank, then to the last: those that it calls and that call it. */
static bool probe_any_source(struct battery_rank *rank)
{
    for (int i = 0; i < 4; i++) {
        int to = i % 2 ? rank->ranks - 1 : 0;
        bool ok = rank->rank == to ? probe_receive_all(rank, i / 2 == 0) : probe_send_all(rank, to);

        if (!ok || !battery_meet(rank))
            return false;
    }
    return true;
}

/* How many messages rank 0 takes until it finds that of the bird, which came first. */
static bool probe_find_bird(struct battery_rank *rank, int bird, int each)
{
    struct dist_request receive;
    int total = 1 + each * (rank->ranks - 2), found = 0, peer;
    bool ok = probe_await(rank, PROBE_TAG, &peer) &&
              battery_expect(rank, peer == bird, "rank %d and not %d came first", peer, bird) &&
              battery_meet(rank);

    battery_linger(rank, 20); /* the others' come as well */
    for (int i = 1; i <= total && ok && (ok = probe_await(rank, PROBE_TAG, &peer)); i++) {
        if (peer == bird)
            found = i;
        battery_recv(rank, &receive, peer, PROBE_TAG, NULL, 0);
        ok = battery_wait_ok(rank, &receive, 1);
    }
    return ok &&
           battery_expect(rank, found > 0 && found < rank->ranks,
                          "the message that came first is found as number %d of %d", found, total);
}

/*
 * One rank's message is there first, then the others send many: no rank is so much preferred that
 * the first one has to wait for more than one message of each.
 */
static bool probe_fair(struct battery_rank *rank, int bird)
{
    struct dist_request sends[TRANSPORT_BATTERY_RANKS_MAX];
    int each = rank->ranks, count = rank->rank == bird ? 1 : each;

    if (rank->rank == bird)
        battery_send(rank, &sends[0], 0, PROBE_TAG, NULL, 0);
    if (rank->rank == 0)
        return probe_find_bird(rank, bird, each);
    if (!battery_meet(rank))
        return false;
    for (int i = 0; i < each && rank->rank != bird; i++)
        battery_send(rank, &sends[i], 0, PROBE_TAG, NULL, 0);
    return battery_wait_ok(rank, sends, count);
}

static bool probe_any_source_fair(struct battery_rank *rank)
{
    return probe_fair(rank, rank->ranks - 1) && battery_meet(rank) && probe_fair(rank, 1) &&
           battery_meet(rank);
}

const struct battery_case battery_probe_cases[] = {
    {.name = "any_source", .run = probe_any_source, .opened = true},
    {.name = "any_source_fair", .run = probe_any_source_fair, .opened = true},
    {.name = NULL},
};
