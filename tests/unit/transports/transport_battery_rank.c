/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank of the battery, and the functions that the cases use. */
#include "transport_battery_rank.h"

#include "base/clock.h"
#include "base/kernels/sink.h"
#include "base/log.h"

#include <dist/backend.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Limits of a wait without any progress, and of a barrier: a busy machine may take much longer for
 * a whole case. */
#define RANK_WAIT_MS 60000
#define RANK_MEET_MS 280000
/* Idle polls before a rank sleeps or yields, and before it sleeps for RANK_SLEEP_NS. */
#define RANK_SPINS 200
#define RANK_YIELDS 1000
#define RANK_SLEEP_NS (100 * 1000)

static const struct dist_host rank_host = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_host),
    .fail = disti_fail,
    .log = disti_log_line,
    .sink_apply = disti_sink_apply,
};

bool battery_expect(struct battery_rank *rank, bool ok, const char *format, ...)
{
    char text[512];
    va_list arguments;

    if (ok)
        return true;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    fprintf(stderr, "    rank %d: %s (last error: %s)\n", rank->rank, text, dist_last_error());
    atomic_fetch_add(&rank->shared->failures, 1);
    return false;
}

void *battery_alloc(size_t bytes)
{
    void *memory = calloc(bytes + 1, 1);

    if (!memory) {
        fprintf(stderr, "    no memory for %zu bytes\n", bytes);
        abort();
    }
    return memory;
}

size_t battery_largest(const struct battery_rank *rank)
{
    return rank->options->largest ? rank->options->largest : (size_t)64 << 20;
}

static void rank_configure(struct battery_rank *rank)
{
    const struct transport_battery_options *options = rank->options;

    rank->config = (struct dist_transport_config){
        .size = sizeof(rank->config),
        .rank = rank->rank,
        .world_size = rank->ranks,
        .timeout_ms = RANK_WAIT_MS,
        .job = "battery",
        .bind_host = options->bind_host ? options->bind_host : "127.0.0.1",
        .local_ranks = rank->ranks,
        .host = &rank_host,
        .context = options->context,
        .secret = options->secret,
        .secret_bytes = options->secret_bytes,
    };
}

static bool rank_connect(struct battery_rank *rank, int peer)
{
    const struct battery_address *address = &rank->shared->address[peer];
    struct dist_reach reach = {0};

    return battery_expect(rank,
                          rank->transport->reach(rank->state, address->blob, address->bytes,
                                                 &reach) == DIST_OK,
                          "reach of rank %d failed", peer) &&
           battery_expect(rank, reach.latency_ns > 0 && reach.bytes_per_second > 0,
                          "rank %d is reached without latency or bandwidth", peer) &&
           battery_expect(rank,
                          rank->transport->connect(rank->state, peer, address->blob,
                                                   address->bytes) == DIST_OK,
                          "connect to rank %d failed", peer);
}

bool battery_open(struct battery_rank *rank)
{
    struct battery_address *mine = &rank->shared->address[rank->rank];

    rank_configure(rank);
    rank->lost = -1;
    rank->state = battery_alloc(rank->transport->state_size);
    if (!battery_expect(rank, rank->transport->open(rank->state, &rank->config) == DIST_OK,
                        "open failed") ||
        !battery_expect(rank,
                        rank->transport->address(rank->state, mine->blob, &mine->bytes) == DIST_OK,
                        "address failed") ||
        !battery_expect(rank, mine->bytes > 0 && mine->bytes <= DIST_ADDRESS_MAX,
                        "the address has %zu bytes", mine->bytes) ||
        !battery_meet(rank))
        return false;
    for (int peer = 0; peer < rank->ranks; peer++) {
        if (peer != rank->rank && !rank_connect(rank, peer))
            return false;
    }
    return true;
}

void battery_close(struct battery_rank *rank)
{
    if (rank->state)
        rank->transport->close(rank->state);
    free(rank->state);
    rank->state = NULL;
}

static void rank_sleep(struct battery_rank *rank, int ms)
{
    struct pollfd event = {.events = POLLIN};

    event.fd = rank->transport->arm(rank->state);
    if (event.fd >= 0)
        rank->overslept += poll(&event, 1, ms) == 0;
    else if (event.fd == -1)
        sched_yield();
    rank->transport->disarm(rank->state);
}

/* Makes progress. If nothing has happened for some calls, sleeps or yields. */
static bool rank_step(struct battery_rank *rank, int *idle_p)
{
    int moved = rank->state ? rank->transport->progress(rank->state) : 0;

    if (moved < 0)
        return battery_expect(rank, false, "progress failed: %s", dist_status_string(moved));
    *idle_p = moved ? 0 : *idle_p + 1;
    if (*idle_p > RANK_SPINS && rank->sleeps)
        rank_sleep(rank, 2000);
    else if (*idle_p > RANK_YIELDS)
        disti_sleep_ns(RANK_SLEEP_NS);
    else if (*idle_p > RANK_SPINS || rank->ranks > 2)
        sched_yield();
    return true;
}

static bool rank_all_arrived(const struct battery_rank *rank)
{
    int mine = atomic_load(&rank->shared->arrived[rank->rank]);

    for (int other = 0; other < rank->ranks; other++) {
        if (other != rank->lost && atomic_load(&rank->shared->arrived[other]) < mine)
            return false;
    }
    return true;
}

bool battery_meet(struct battery_rank *rank)
{
    int64_t deadline = disti_deadline_ms(RANK_MEET_MS);
    bool sleeps = rank->sleeps;
    bool ok = true;
    int idle = 0;

    rank->sleeps = false; /* the barrier rings no doorbell */
    atomic_fetch_add(&rank->shared->arrived[rank->rank], 1);
    while (ok && !rank_all_arrived(rank)) {
        ok = rank_step(rank, &idle) && !atomic_load(&rank->shared->failures) &&
             battery_expect(rank, !disti_expired(deadline),
                            "the other ranks do not reach the barrier");
    }
    rank->sleeps = sleeps;
    return ok;
}

void battery_progress_ms(struct battery_rank *rank, int ms)
{
    int64_t deadline = disti_deadline_ms(ms);
    int idle = 0;

    while (!disti_expired(deadline) && rank_step(rank, &idle))
        disti_sleep_ns(RANK_SLEEP_NS);
}

static void rank_fill_request(struct dist_request *request, int peer, uint64_t tag, size_t bytes)
{
    memset(request, 0, sizeof(*request));
    request->status = DIST_IN_PROGRESS;
    request->peer = peer;
    request->envelope =
        (struct dist_envelope){.tag = tag, .fingerprint = tag * 31 + 7, .bytes = bytes};
}

void battery_send(struct battery_rank *rank, struct dist_request *request, int peer, uint64_t tag,
                  const void *data, size_t bytes)
{
    rank_fill_request(request, peer, tag, bytes);
    request->data = data;
    rank->transport->send(rank->state, request);
}

void battery_recv_sink(struct battery_rank *rank, struct dist_request *request, int peer,
                       uint64_t tag, const struct dist_sink *sink)
{
    rank_fill_request(request, peer, tag, sink->bytes);
    request->sink = *sink;
    rank->transport->recv(rank->state, request);
}

void battery_recv(struct battery_rank *rank, struct dist_request *request, int peer, uint64_t tag,
                  void *dst, size_t bytes)
{
    const struct dist_sink sink = {.dst = dst, .bytes = bytes};

    battery_recv_sink(rank, request, peer, tag, &sink);
}

bool battery_wait(struct battery_rank *rank, struct dist_request *requests, int count)
{
    int64_t deadline = disti_deadline_ms(RANK_WAIT_MS);
    int idle = 0;

    for (int i = 0; i < count; i++) {
        while (requests[i].status == DIST_IN_PROGRESS) {
            if (!rank_step(rank, &idle) || atomic_load(&rank->shared->failures))
                return false;
            if (idle == 0)
                deadline = disti_deadline_ms(RANK_WAIT_MS);
            if (idle > RANK_SPINS && disti_expired(deadline))
                return battery_expect(
                    rank, false, "request %d of %d (peer %d, tag %llu, %llu bytes) does not end", i,
                    count, requests[i].peer, (unsigned long long)requests[i].envelope.tag,
                    (unsigned long long)requests[i].envelope.bytes);
        }
    }
    return true;
}

bool battery_wait_ok(struct battery_rank *rank, struct dist_request *requests, int count)
{
    if (!battery_wait(rank, requests, count))
        return false;
    for (int i = 0; i < count; i++) {
        if (!battery_expect(rank, requests[i].status == DIST_OK,
                            "request %d of %d (peer %d, %llu bytes) ended with: %s", i, count,
                            requests[i].peer, (unsigned long long)requests[i].envelope.bytes,
                            dist_status_string(requests[i].status)))
            return false;
    }
    return true;
}

uint64_t battery_mix(uint64_t a, uint64_t b)
{
    uint64_t x = a * 0x9e3779b97f4a7c15u + b + 1;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t rank_key(int from, int to, uint64_t seed)
{
    return battery_mix(seed, (uint64_t)from * 1000 + (uint64_t)to);
}

void battery_fill(void *data, size_t bytes, int from, int to, uint64_t seed)
{
    uint64_t key = rank_key(from, to, seed), word;
    unsigned char *at = data;

    for (size_t i = 0; i < bytes; i += sizeof(word)) {
        word = key + i * 0x100000001b3u;
        memcpy(at + i, &word, bytes - i < sizeof(word) ? bytes - i : sizeof(word));
    }
}

bool battery_check(struct battery_rank *rank, const void *data, size_t bytes, int from, int to,
                   uint64_t seed)
{
    uint64_t key = rank_key(from, to, seed), word;
    const unsigned char *at = data;

    for (size_t i = 0; i < bytes; i += sizeof(word)) {
        word = key + i * 0x100000001b3u;
        if (memcmp(at + i, &word, bytes - i < sizeof(word) ? bytes - i : sizeof(word)) != 0)
            return battery_expect(rank, false, "wrong bytes from rank %d at %zu of %zu", from, i,
                                  bytes);
    }
    return true;
}
