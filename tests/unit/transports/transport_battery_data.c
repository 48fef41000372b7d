/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases of the battery about the transfer of data: every message, in order, to its sink. */
#include "transport_battery_rank.h"

#include <stdlib.h>
#include <string.h>

static bool data_reach(struct battery_rank *rank)
{
    const struct dist_transport *transport = rank->transport;
    unsigned char blob[DIST_ADDRESS_MAX];
    size_t bytes = rank->shared->address[rank->rank].bytes;
    struct dist_reach reach;

    memset(blob, 0x5a, sizeof(blob));
    return battery_expect(
               rank, transport->reach(rank->state, blob, bytes, &reach) == DIST_ERR_UNSUPPORTED,
               "reach accepts an invalid address") &&
           battery_expect(rank,
                          transport->reach(rank->state, rank->shared->address[rank->rank].blob,
                                           bytes - 1, &reach) == DIST_ERR_UNSUPPORTED,
                          "reach accepts a truncated address") &&
           battery_expect(rank, transport->abi == DIST_ABI && transport->size == sizeof(*transport),
                          "abi or size is wrong");
}

static bool data_ping_pong_size(struct battery_rank *rank, size_t bytes, int rounds)
{
    unsigned char *out = battery_alloc(bytes), *in = battery_alloc(bytes);
    int peer = 1 - rank->rank;
    bool ok = true;

    for (int i = 0; i < rounds && ok; i++) {
        uint64_t tag = (uint64_t)i;
        struct dist_request request[2];

        battery_fill(out, bytes, rank->rank, peer, tag);
        battery_recv(rank, &request[0], peer, tag, in, bytes);
        if (rank->rank == 0)
            battery_send(rank, &request[1], peer, tag, out, bytes);
        ok = battery_wait_ok(rank, request, 1) &&
             battery_check(rank, in, bytes, peer, rank->rank, tag);
        if (rank->rank == 1)
            battery_send(rank, &request[1], peer, tag, out, bytes);
        ok = ok && battery_wait_ok(rank, &request[1], 1);
    }
    free(out);
    free(in);
    return ok;
}

static bool data_ping_pong(struct battery_rank *rank)
{
    return data_ping_pong_size(rank, 8, 5000) && data_ping_pong_size(rank, 1000, 1000) &&
           data_ping_pong_size(rank, 100000, 50);
}

/* Sends `bytes` to every other rank and receives as much from each, all at once. */
static bool data_exchange_all(struct battery_rank *rank, size_t bytes, uint64_t tag)
{
    int peers = rank->ranks - 1;
    unsigned char *out = battery_alloc(bytes * (size_t)peers);
    unsigned char *in = battery_alloc(bytes * (size_t)peers);
    struct dist_request *requests = battery_alloc(sizeof(*requests) * 2 * (size_t)peers);
    bool ok;

    for (int i = 0; i < peers; i++) {
        int peer = (rank->rank + 1 + i) % rank->ranks;

        battery_fill(out + (size_t)i * bytes, bytes, rank->rank, peer, tag);
        battery_recv(rank, &requests[i], peer, tag, in + (size_t)i * bytes, bytes);
        battery_send(rank, &requests[peers + i], peer, tag, out + (size_t)i * bytes, bytes);
    }
    ok = battery_wait_ok(rank, requests, 2 * peers);
    for (int i = 0; i < peers && ok; i++)
        ok = battery_check(rank, in + (size_t)i * bytes, bytes, (rank->rank + 1 + i) % rank->ranks,
                           rank->rank, tag);
    free(out);
    free(in);
    free(requests);
    return ok;
}

static bool data_all_pairs(struct battery_rank *rank)
{
    return data_exchange_all(rank, 1, 1) && data_exchange_all(rank, 1000, 2) &&
           data_exchange_all(rank, (size_t)1 << 20, 3);
}

static bool data_zero_bytes(struct battery_rank *rank)
{
    for (uint64_t tag = 0; tag < 100; tag++) {
        if (!data_exchange_all(rank, 0, tag))
            return false;
    }
    return true;
}

#define DATA_MANY 150

static size_t data_many_bytes(int i)
{
    return i % 3 == 0 ? (size_t)i : i % 3 == 1 ? (size_t)i * 300 : 70000;
}

/* DATA_MANY messages with a tag each. The last is received first, and each receive ends before the
 * next is posted, so no limit of the transport may block the last message. */
static bool data_reversed(struct battery_rank *rank)
{
    struct dist_request *sends = battery_alloc(sizeof(*sends) * DATA_MANY);
    unsigned char *out[DATA_MANY];
    int peer = 1 - rank->rank;
    bool ok = true;

    for (int i = 0; i < DATA_MANY; i++) {
        out[i] = battery_alloc(data_many_bytes(i));
        battery_fill(out[i], data_many_bytes(i), rank->rank, peer, (uint64_t)i);
        battery_send(rank, &sends[i], peer, (uint64_t)i, out[i], data_many_bytes(i));
    }
    for (int i = DATA_MANY; i-- > 0 && ok;) {
        unsigned char *in = battery_alloc(data_many_bytes(i));
        struct dist_request receive;

        battery_recv(rank, &receive, peer, (uint64_t)i, in, data_many_bytes(i));
        ok = battery_wait_ok(rank, &receive, 1) &&
             battery_check(rank, in, data_many_bytes(i), peer, rank->rank, (uint64_t)i);
        free(in);
    }
    ok = ok && battery_wait_ok(rank, sends, DATA_MANY) && battery_meet(rank);
    for (int i = 0; i < DATA_MANY; i++)
        free(out[i]);
    free(sends);
    return ok;
}

/* Sends messages of many sizes with one tag. Some receives are posted before their message arrives,
 * and some after it. */
static bool data_ordered(struct battery_rank *rank)
{
    struct dist_request *requests = battery_alloc(sizeof(*requests) * 2 * DATA_MANY);
    unsigned char *out[DATA_MANY], *in[DATA_MANY];
    int peer = 1 - rank->rank;
    bool ok = true;

    for (int i = 0; i < DATA_MANY; i++) {
        size_t bytes = data_many_bytes(i);

        out[i] = battery_alloc(bytes);
        in[i] = battery_alloc(bytes);
        battery_fill(out[i], bytes, rank->rank, peer, (uint64_t)i);
        if (i < DATA_MANY / 2)
            battery_recv(rank, &requests[i], peer, 5, in[i], bytes);
    }
    for (int i = 0; i < DATA_MANY; i++)
        battery_send(rank, &requests[DATA_MANY + i], peer, 5, out[i], data_many_bytes(i));
    battery_progress_ms(rank, 20);
    for (int i = DATA_MANY / 2; i < DATA_MANY; i++)
        battery_recv(rank, &requests[i], peer, 5, in[i], data_many_bytes(i));
    ok = battery_wait_ok(rank, requests, 2 * DATA_MANY);
    for (int i = 0; i < DATA_MANY && ok; i++)
        ok = battery_check(rank, in[i], data_many_bytes(i), peer, rank->rank, (uint64_t)i);
    for (int i = 0; i < DATA_MANY; i++) {
        free(out[i]);
        free(in[i]);
    }
    free(requests);
    return ok;
}

static bool data_sizes(struct battery_rank *rank)
{
    const size_t *boundary = rank->options->boundaries;
    size_t largest = battery_largest(rank);

    for (; boundary && *boundary; boundary++) {
        if (!data_exchange_all(rank, *boundary - 1, 1) || !data_exchange_all(rank, *boundary, 2) ||
            !data_exchange_all(rank, *boundary + 1, 3))
            return false;
    }
    for (size_t bytes = 1; bytes < largest; bytes *= 3) {
        if (!data_exchange_all(rank, bytes, 4))
            return false;
    }
    return data_exchange_all(rank, largest, 5);
}

/* All messages arrive before their receives are posted, while their sends are still in progress. */
static bool data_unexpected(struct battery_rank *rank)
{
    static const size_t sizes[] = {0, 8, 5000, 70000, 3000000};
    enum { COUNT = sizeof(sizes) / sizeof(sizes[0]) };
    struct dist_request sends[COUNT], receives[COUNT];
    unsigned char *out[COUNT], *in[COUNT];
    int peer = 1 - rank->rank;
    bool ok = true;

    for (int i = 0; i < COUNT; i++) {
        out[i] = battery_alloc(sizes[i]);
        in[i] = battery_alloc(sizes[i]);
        battery_fill(out[i], sizes[i], rank->rank, peer, (uint64_t)i);
        battery_send(rank, &sends[i], peer, (uint64_t)i, out[i], sizes[i]);
    }
    battery_progress_ms(rank, 50);
    for (int i = 0; i < COUNT; i++)
        battery_recv(rank, &receives[i], peer, (uint64_t)i, in[i], sizes[i]);
    ok = battery_wait_ok(rank, receives, COUNT) && battery_wait_ok(rank, sends, COUNT);
    for (int i = 0; i < COUNT; i++) {
        ok = ok && battery_check(rank, in[i], sizes[i], peer, rank->rank, (uint64_t)i);
        free(out[i]);
        free(in[i]);
    }
    return ok;
}

#define STORM_ROUNDS 60
#define STORM_BATCH 6

static size_t data_storm_bytes(int round, int from, int to, int k)
{
    uint64_t random = battery_mix((uint64_t)(round * 100 + k), (uint64_t)(from * 100 + to));
    unsigned scale = (unsigned)(random % 19);

    return (size_t)((random >> 8) % ((uint64_t)1 << scale));
}

/* Runs a round: exchanges STORM_BATCH messages between each pair, received in a rotated order. */
static bool data_storm_round(struct battery_rank *rank, int round)
{
    struct dist_request requests[TRANSPORT_BATTERY_RANKS_MAX * STORM_BATCH * 2];
    unsigned char *data[TRANSPORT_BATTERY_RANKS_MAX * STORM_BATCH * 2] = {NULL};
    int count = 0, me = rank->rank;
    bool ok;

    for (int i = 0; i < rank->ranks * STORM_BATCH * 2; i++) {
        int peer = (i / 2 + me) % rank->ranks, k = i / 2 / rank->ranks;
        bool sends = (i + round) % 2;

        if (!sends)
            k = (k + round) % STORM_BATCH;
        if (peer == me)
            continue;
        if (sends) {
            size_t bytes = data_storm_bytes(round, me, peer, k);

            data[count] = battery_alloc(bytes);
            battery_fill(data[count], bytes, me, peer, (uint64_t)k);
            battery_send(rank, &requests[count], peer, (uint64_t)k, data[count], bytes);
        } else {
            size_t bytes = data_storm_bytes(round, peer, me, k);

            data[count] = battery_alloc(bytes);
            battery_recv(rank, &requests[count], peer, (uint64_t)k, data[count], bytes);
        }
        count++;
    }
    ok = battery_wait_ok(rank, requests, count);
    for (int i = 0; i < count; i++) {
        const struct dist_request *request = &requests[i];

        if (ok && !request->data)
            ok = battery_check(rank, data[i], (size_t)request->envelope.bytes, request->peer, me,
                               request->envelope.tag);
        free(data[i]);
    }
    return ok;
}

static bool data_storm(struct battery_rank *rank)
{
    for (int round = 0; round < STORM_ROUNDS; round++) {
        rank->sleeps = round / 10 % 2;
        if (!data_storm_round(rank, round))
            return false;
    }
    rank->sleeps = false;
    return true;
}

const struct battery_case battery_data_cases[] = {
    {.name = "reach", .run = data_reach, .ranks = 2, .opened = true},
    {.name = "ping_pong", .run = data_ping_pong, .ranks = 2, .opened = true},
    {.name = "all_pairs", .run = data_all_pairs, .opened = true},
    {.name = "zero_bytes", .run = data_zero_bytes, .opened = true},
    {.name = "reversed", .run = data_reversed, .ranks = 2, .opened = true},
    {.name = "ordered", .run = data_ordered, .ranks = 2, .opened = true},
    {.name = "sizes", .run = data_sizes, .ranks = 2, .opened = true},
    {.name = "early", .run = data_unexpected, .ranks = 2, .opened = true},
    {.name = "storm", .run = data_storm, .opened = true},
    {.name = NULL},
};
