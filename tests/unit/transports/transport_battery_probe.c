/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases of the battery about receives from any source. */
#include "base/clock.h"
#include "transport_battery_rank.h"

#include <stdlib.h>

#define PROBE_TAG 5
#define PROBE_OTHER_TAG 6
#define PROBE_WAIT_MS 60000

static const size_t probe_sizes[] = {0, 70000, 8, 3000000, 5000};
enum { PROBE_MESSAGES = sizeof(probe_sizes) / sizeof(probe_sizes[0]) };

/* Returns the length of message i of a sender, which the receiver can compute too. */
static size_t probe_bytes(int from, int i)
{
    return probe_sizes[(from + i) % PROBE_MESSAGES];
}

/* Probes twice, because probing must not change anything. */
static bool probe_twice(struct battery_rank *rank, uint64_t tag, int *peer_p)
{
    int peer = rank->transport->probe_tag(rank->state, tag);

    *peer_p = peer;
    return battery_expect(rank, peer >= -1 && peer < rank->ranks && peer != rank->rank,
                          "the probe of tag %d returns rank %d", (int)tag, peer) &&
           battery_expect(rank, rank->transport->probe_tag(rank->state, tag) == peer,
                          "the second probe of tag %d returns another rank than %d", (int)tag,
                          peer);
}

static bool probe_nothing(struct battery_rank *rank, uint64_t tag)
{
    int peer;

    return probe_twice(rank, tag, &peer) &&
           battery_expect(rank, peer == -1, "unexpected message of rank %d with tag %d", peer,
                          (int)tag);
}

/* Waits until a rank has sent a message with this tag. */
static bool probe_wait(struct battery_rank *rank, uint64_t tag, int *peer_p)
{
    int64_t deadline = disti_deadline_ms(PROBE_WAIT_MS);

    while (probe_twice(rank, tag, peer_p)) {
        if (*peer_p >= 0)
            return true;
        if (!battery_expect(rank, !disti_expired(deadline), "no message with tag %d arrives",
                            (int)tag))
            return false;
        battery_progress_ms(rank, 1);
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

/* The messages that the receiver has got from one peer. */
struct probe_inbox {
    struct dist_request receives[PROBE_MESSAGES];
    unsigned char *in[PROBE_MESSAGES];
    int count;
};

/* Receives the message that was found. wait: completely, before the next one is looked for. */
static bool probe_receive(struct battery_rank *rank, struct probe_inbox *inbox, int peer, bool wait)
{
    int i = inbox->count;
    size_t bytes = probe_bytes(peer, i);

    if (!battery_expect(rank, i < PROBE_MESSAGES, "rank %d has more messages than it sent", peer))
        return false;
    inbox->in[i] = battery_alloc(bytes);
    battery_recv(rank, &inbox->receives[i], peer, PROBE_TAG, inbox->in[i], bytes);
    inbox->count++;
    return !wait || battery_wait_ok(rank, &inbox->receives[i], 1);
}

static bool probe_check(struct battery_rank *rank, const struct probe_inbox *inbox, int peer)
{
    bool ok = battery_expect(rank, inbox->count == PROBE_MESSAGES,
                             "%d messages received from rank %d", inbox->count, peer);

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
        ok = probe_wait(rank, PROBE_TAG, &peer) && probe_receive(rank, &inboxes[peer], peer, wait);
    ok = ok && probe_nothing(rank, PROBE_TAG);
    for (peer = 0; peer < rank->ranks; peer++) {
        ok = ok && (peer == rank->rank || probe_check(rank, &inboxes[peer], peer));
        for (int i = 0; i < inboxes[peer].count; i++)
            free(inboxes[peer].in[i]);
    }
    free(inboxes);
    return ok && probe_nothing(rank, PROBE_TAG);
}

/* All ranks send to the first rank, then to the last, so that both directions of connecting are
 * tested. */
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

/* Rank 0 receives all messages and counts how many it receives until the message of `oldest`, which
 * arrived first. */
static bool probe_find_oldest(struct battery_rank *rank, int oldest, int each)
{
    struct dist_request receive;
    int total = 1 + each * (rank->ranks - 2), found = 0, peer;
    bool ok = probe_wait(rank, PROBE_TAG, &peer) &&
              battery_expect(rank, peer == oldest, "rank %d is found first instead of %d", peer,
                             oldest) &&
              battery_meet(rank);

    battery_progress_ms(rank, 20); /* the messages of the other ranks arrive too */
    for (int i = 1; i <= total && ok && (ok = probe_wait(rank, PROBE_TAG, &peer)); i++) {
        if (peer == oldest)
            found = i;
        battery_recv(rank, &receive, peer, PROBE_TAG, NULL, 0);
        ok = battery_wait_ok(rank, &receive, 1);
    }
    return ok && battery_expect(rank, found > 0 && found < rank->ranks,
                                "the oldest message is found as number %d of %d", found, total);
}

/* The message of one rank arrives first, then the other ranks send many: the first one is received
 * after at most one message of each other rank. */
static bool probe_fair(struct battery_rank *rank, int oldest)
{
    struct dist_request sends[TRANSPORT_BATTERY_RANKS_MAX];
    int each = rank->ranks, count = rank->rank == oldest ? 1 : each;

    if (rank->rank == oldest)
        battery_send(rank, &sends[0], 0, PROBE_TAG, NULL, 0);
    if (rank->rank == 0)
        return probe_find_oldest(rank, oldest, each);
    if (!battery_meet(rank))
        return false;
    for (int i = 0; i < each && rank->rank != oldest; i++)
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
