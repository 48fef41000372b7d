/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases of the battery about errors, leaving and sleeping. */
#include "base/clock.h"
#include "transport_battery_rank.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A receive whose fingerprint or size differs from the message's, posted before or after the
 * message arrives. */
static bool fault_mismatch_once(struct battery_rank *rank, size_t sent, size_t expected,
                                uint64_t tag, bool posted_first)
{
    unsigned char *data = battery_alloc(sent + expected);
    struct dist_request request = {.peer = 1 - rank->rank};
    const struct dist_sink sink = {.dst = data, .bytes = expected};
    bool ok = battery_meet(rank);

    if (rank->rank == 0 && posted_first)
        battery_progress_ms(rank, 10);
    if (rank->rank == 1 && !posted_first)
        battery_progress_ms(rank, 10);
    if (rank->rank == 0) {
        battery_send(rank, &request, 1, tag, data, sent);
        ok = ok && battery_wait(rank, &request, 1) &&
             battery_expect(rank, request.status == DIST_OK || request.status == DIST_ERR_MISMATCH,
                            "the send ended with %s", dist_status_string(request.status));
    } else {
        request.status = DIST_IN_PROGRESS;
        request.sink = sink;
        request.envelope = (struct dist_envelope){
            .tag = tag, .fingerprint = tag * 31 + (sent == expected ? 8 : 7), .bytes = expected};
        rank->transport->recv(rank->state, &request);
        ok = ok && battery_wait(rank, &request, 1) &&
             battery_expect(rank, request.status == DIST_ERR_MISMATCH, "a mismatch ended with %s",
                            dist_status_string(request.status)) &&
             battery_expect(rank,
                            request.arrived.tag == tag && request.arrived.bytes == sent &&
                                request.arrived.fingerprint == tag * 31 + 7,
                            "`arrived` differs from the sent message");
    }
    ok = ok && battery_meet(rank); /* the sender's data may still be in transit */
    free(data);
    return ok;
}

/* After a mismatch, the pair can exchange further messages. */
static bool fault_mismatch_after(struct battery_rank *rank, uint64_t tag)
{
    unsigned char byte[2] = {7, 0};
    struct dist_request request[2];

    battery_recv(rank, &request[0], 1 - rank->rank, tag, &byte[1], 1);
    battery_send(rank, &request[1], 1 - rank->rank, tag, &byte[0], 1);
    return battery_wait_ok(rank, request, 2) &&
           battery_expect(rank, byte[1] == 7, "wrong byte after a mismatch");
}

static bool fault_mismatch(struct battery_rank *rank)
{
    static const size_t sizes[] = {8, 3000, 300000};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int order = 0; order < 2; order++) {
            uint64_t tag = i * 2 + (uint64_t)order;

            if (!fault_mismatch_once(rank, sizes[i], sizes[i], tag, order) ||
                !fault_mismatch_once(rank, sizes[i], sizes[i] / 2, tag, order) ||
                !fault_mismatch_once(rank, sizes[i], sizes[i] * 2, tag, order) ||
                !fault_mismatch_once(rank, sizes[i], 0, tag, order) ||
                !fault_mismatch_after(rank, tag))
                return false;
        }
    }
    return true;
}

/* Rank 0 is killed while it exchanges long messages with all ranks. */
static bool fault_killed_victim(struct battery_rank *rank, unsigned char *data, size_t bytes)
{
    struct dist_request requests[2 * TRANSPORT_BATTERY_RANKS_MAX];
    int count = 0;

    for (int peer = 1; peer < rank->ranks; peer++) {
        battery_recv(rank, &requests[count++], peer, 2, data, bytes);
        battery_send(rank, &requests[count++], peer, 2, data, bytes);
    }
    for (int i = 0; i < 20; i++)
        rank->transport->progress(rank->state);
    atomic_store(&rank->shared->noted_ns, disti_now_ns());
    kill(getpid(), SIGKILL);
    return false;
}

static bool fault_killed_survivor(struct battery_rank *rank, unsigned char *data, size_t bytes)
{
    int limit_ms = rank->options->loss_ms ? rank->options->loss_ms : 10000;
    struct dist_request requests[5];
    int64_t took_ns;

    rank->sleeps = rank->rank % 2;
    battery_recv(rank, &requests[0], 0, 2, data, bytes);
    battery_send(rank, &requests[1], 0, 2, data, bytes);
    battery_recv(rank, &requests[2], 0, 99, data, 8); /* which no rank sends */
    if (!battery_wait(rank, requests, 3))
        return false;
    took_ns = disti_now_ns() - atomic_load(&rank->shared->noted_ns);
    battery_recv(rank, &requests[3], 0, 98, data, 8);
    battery_send(rank, &requests[4], 0, 98, data, 8);
    for (int i = 2; i < 5; i++) {
        if (!battery_expect(rank, requests[i].status == DIST_ERR_PEER_LOST,
                            "request %d with the killed rank ended with %s", i,
                            dist_status_string(requests[i].status)))
            return false;
    }
    return battery_expect(rank, took_ns < limit_ms * INT64_C(1000000), "detected after %lld ms",
                          (long long)(took_ns / 1000000));
}

/* Exchanges a byte between all pairs of ranks. */
static bool fault_connect_all(struct battery_rank *rank)
{
    struct dist_request requests[2 * TRANSPORT_BATTERY_RANKS_MAX];
    unsigned char bytes[TRANSPORT_BATTERY_RANKS_MAX] = {0};
    int count = 0;

    for (int peer = 0; peer < rank->ranks; peer++) {
        if (peer == rank->rank)
            continue;
        battery_recv(rank, &requests[count++], peer, 1, &bytes[peer], 1);
        battery_send(rank, &requests[count++], peer, 1, &bytes[rank->rank], 1);
    }
    return battery_wait_ok(rank, requests, count) && battery_meet(rank);
}

static bool fault_killed(struct battery_rank *rank)
{
    size_t bytes = battery_largest(rank) / 4;
    unsigned char *data = battery_alloc(bytes);
    struct dist_request ring[2];
    int survivors = rank->ranks - 1;
    bool ok;

    if (rank->options->connected_first && !fault_connect_all(rank))
        return false;
    if (rank->rank == 0)
        return fault_killed_victim(rank, data, bytes);
    rank->lost = 0;
    ok = fault_killed_survivor(rank, data, bytes) && battery_meet(rank);
    rank->sleeps = false;
    /* The survivors can still send to each other, in a ring. */
    battery_recv(rank, &ring[0], 1 + (rank->rank - 1 + survivors - 1) % survivors, 7, data,
                 bytes / 2);
    battery_send(rank, &ring[1], 1 + rank->rank % survivors, 7, data + bytes / 2, bytes / 2);
    ok = ok && battery_wait_ok(rank, ring, 2);
    free(data);
    return ok;
}

/* Rank 0 sends a message and leaves immediately. Rank 1 receives it later; further requests
 * fail. */
static bool fault_leave_after_send(struct battery_rank *rank)
{
    unsigned char out[100], in[100];
    struct dist_request requests[3];
    bool ok;

    if (!battery_open(rank))
        return false;
    battery_fill(out, sizeof(out), 0, 1, 1);
    if (rank->rank == 0) {
        battery_send(rank, &requests[0], 1, 1, out, sizeof(out));
        ok = battery_wait_ok(rank, requests, 1);
        battery_close(rank);
        return ok;
    }
    battery_progress_ms(rank, 100);
    battery_recv(rank, &requests[0], 0, 1, in, sizeof(in));
    battery_recv(rank, &requests[1], 0, 2, in, sizeof(in));
    battery_send(rank, &requests[2], 0, 2, out, sizeof(out));
    ok = battery_wait(rank, requests, 3) &&
         battery_expect(rank, requests[0].status == DIST_OK, "the last message ended with %s",
                        dist_status_string(requests[0].status)) &&
         battery_check(rank, in, sizeof(in), 0, 1, 1) &&
         battery_expect(
             rank,
             requests[1].status == DIST_ERR_PEER_LOST &&
                 (requests[2].status == DIST_ERR_PEER_LOST || requests[2].status == DIST_OK),
             "requests to a rank that left ended with %s and %s",
             dist_status_string(requests[1].status), dist_status_string(requests[2].status));
    battery_close(rank);
    return ok;
}

/* A state can be closed at every stage. */
static bool fault_leave_half_open(struct battery_rank *rank)
{
    unsigned char *data = battery_alloc(300000);
    struct dist_request requests[4];
    bool ok;

    ok = battery_open(rank);
    battery_close(rank); /* nothing was sent */
    ok = ok && battery_meet(rank) && battery_open(rank);
    if (ok) {
        battery_send(rank, &requests[0], 1 - rank->rank, 1, data, 300000);
        battery_recv(rank, &requests[1], 1 - rank->rank, 2, data, 300000);
        battery_send(rank, &requests[2], 1 - rank->rank, 3, data, 8);
        battery_recv(rank, &requests[3], 1 - rank->rank, 4, data, 8);
        for (int i = 0; i < 1 + rank->rank * 1000; i++)
            rank->transport->progress(rank->state);
    }
    battery_close(rank); /* while messages are in transit */
    free(data);
    return ok && battery_meet(rank);
}

static bool fault_leave(struct battery_rank *rank)
{
    return fault_leave_half_open(rank) && fault_leave_after_send(rank);
}

/* An idle rank really sleeps, and is woken by a message. */
static bool fault_sleep_once(struct battery_rank *rank, size_t bytes, uint64_t tag)
{
    const struct dist_transport *transport = rank->transport;
    unsigned char *data = battery_alloc(bytes);
    struct dist_request request;
    bool ok = true;
    int sleeps = 0;

    if (rank->rank == 0) {
        disti_sleep_ns(50 * 1000 * 1000);
        battery_send(rank, &request, 1, tag, data, bytes);
        ok = battery_wait_ok(rank, &request, 1);
        free(data);
        return ok;
    }
    battery_recv(rank, &request, 0, tag, data, bytes);
    while (request.status == DIST_IN_PROGRESS && ok) {
        struct pollfd event = {.events = POLLIN};

        transport->progress(rank->state);
        if (request.status != DIST_IN_PROGRESS)
            break;
        event.fd = transport->arm(rank->state);
        ok = battery_expect(rank, event.fd != -1, "arm returned no descriptor to sleep on");
        if (event.fd >= 0) {
            ok = ok && battery_expect(rank, poll(&event, 1, 5000) == 1, "not woken within 5 s");
            sleeps++;
        }
        transport->disarm(rank->state);
    }
    free(data);
    return ok &&
           battery_expect(rank, request.status == DIST_OK, "the receive ended with %s",
                          dist_status_string(request.status)) &&
           battery_expect(rank, sleeps < 5000, "woken %d times for one message", sleeps);
}

/* Both ranks sleep whenever they wait: every message must wake its receiver. */
static bool fault_sleep_both(struct battery_rank *rank, size_t bytes, int rounds)
{
    unsigned char *data = battery_alloc(bytes);
    bool ok = true;

    for (int i = 0; i < rounds && ok; i++) {
        struct dist_request requests[2];

        if (rank->rank == i % 2) {
            battery_send(rank, &requests[0], 1 - rank->rank, 9, data, bytes);
            battery_recv(rank, &requests[1], 1 - rank->rank, 9, data, bytes);
            ok = battery_wait_ok(rank, requests, 2);
        } else {
            battery_recv(rank, &requests[0], 1 - rank->rank, 9, data, bytes);
            ok = battery_wait_ok(rank, requests, 1);
            battery_send(rank, &requests[1], 1 - rank->rank, 9, data, bytes);
            ok = ok && battery_wait_ok(rank, &requests[1], 1);
        }
    }
    free(data);
    return ok && battery_expect(rank, rank->overslept == 0, "a wake-up was lost");
}

static bool fault_sleep(struct battery_rank *rank)
{
    bool ok = fault_sleep_once(rank, 8, 1) && fault_sleep_once(rank, 5000000, 2);
    int part = battery_brief(rank) ? 5 : 1;

    rank->sleeps = true;
    ok = ok && fault_sleep_both(rank, 8, 300 / part) &&
         fault_sleep_both(rank, 100000, 200 / part) && fault_sleep_both(rank, 2000000, 50 / part);
    rank->sleeps = false;
    return ok;
}

static int fault_count_fds(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;

    while (directory && readdir(directory))
        count++;
    if (directory)
        closedir(directory);
    return count;
}

static bool fault_reopen(struct battery_rank *rank)
{
    int before = 0, after;

    for (int i = 0; i < 100; i++) {
        unsigned char byte[2] = {(unsigned char)i, 0};
        struct dist_request requests[2];

        if (i == 1) {
            before = fault_count_fds();
            if (!battery_meet(rank))
                return false;
        }
        if (!battery_open(rank))
            return false;
        battery_recv(rank, &requests[0], 1 - rank->rank, 1, &byte[1], 1);
        battery_send(rank, &requests[1], 1 - rank->rank, 1, &byte[0], 1);
        if (!battery_wait_ok(rank, requests, 2) || !battery_meet(rank) ||
            !battery_expect(rank, byte[0] == byte[1], "wrong byte in round %d", i))
            return false;
        battery_close(rank);
        if (!battery_meet(rank))
            return false;
    }
    after = fault_count_fds();
    /* Threads count in the same table at the same time: each may see the other's open directory. */
    return battery_expect(rank, after <= before + (rank->options->threads ? 2 : 0),
                          "file descriptors: %d before, %d after", before, after) &&
           battery_meet(rank);
}

const struct battery_case battery_fault_cases[] = {
    {.name = "mismatch", .run = fault_mismatch, .ranks = 2, .opened = true},
    {.name = "killed", .run = fault_killed, .opened = true, .processes = true, .killed = 1},
    {.name = "leave", .run = fault_leave, .ranks = 2},
    {.name = "sleep", .run = fault_sleep, .ranks = 2, .opened = true},
    {.name = "reopen", .run = fault_reopen, .ranks = 2},
    {.name = NULL},
};
