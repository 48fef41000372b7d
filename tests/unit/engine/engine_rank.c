/* SPDX-License-Identifier: BSD-3-Clause */
/* Engines of several ranks, each in its own process, over a transport of the library. */
#include "engine_rank.h"

#include "backends/registry.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define RANK_BLOB 8192
#define RANK_WAIT_MS 30000
#define RANK_POLLS 2000

struct engine_shared {
    atomic_int arrived[ENGINE_RANKS_MAX]; /* calls of engine_rank_meet by each rank */
    char blob[ENGINE_RANKS_MAX][RANK_BLOB];
    const char *transport;
    int ranks;
    engine_rank_fn fn;
};

bool engine_ranks_reproducible, engine_ranks_scattered, engine_ranks_world;

static void rank_progress(const struct engine_rank *rank)
{
    CHECK(!rank->engine || disti_engine_progress(rank->engine) >= 0 || rank->broken);
    sched_yield();
}

void engine_rank_meet(struct engine_rank *rank)
{
    int mine = atomic_fetch_add(&rank->shared->arrived[rank->rank], 1) + 1;
    int64_t deadline = disti_deadline_ms(RANK_WAIT_MS);

    for (int other = 0; other < rank->ranks; other++) {
        while (atomic_load(&rank->shared->arrived[other]) < mine) {
            CHECK(!disti_expired(deadline));
            rank_progress(rank);
        }
    }
}

static dist_status rank_all_gather(void *arg, const void *in, void *out, size_t bytes)
{
    struct engine_rank *rank = arg;

    CHECK(bytes <= RANK_BLOB);
    if (bytes)
        memcpy(rank->shared->blob[rank->rank], in, bytes);
    engine_rank_meet(rank);
    for (int other = 0; bytes && other < rank->ranks; other++)
        memcpy((char *)out + (size_t)other * bytes, rank->shared->blob[other], bytes);
    engine_rank_meet(rank);
    return DIST_OK;
}

static void rank_open(struct engine_rank *rank)
{
    const struct dist_transport *transports[] = {disti_transport_find(rank->shared->transport),
                                                 NULL};
    const struct dist_engine_config config = {.size = sizeof(config), .transports = transports};

    for (int r = 0; engine_ranks_scattered && r < rank->ranks; r++)
        rank->places[r] = (struct dist_place){.node = r % 2, .core = (r * 3) % 4};
    rank->config = (struct dist_backend_config){.size = sizeof(rank->config),
                                                .host = &disti_host,
                                                .rank = rank->rank,
                                                .world_size = rank->ranks,
                                                .local_rank = rank->rank,
                                                .local_ranks = rank->ranks,
                                                .timeout_ms = RANK_WAIT_MS,
                                                .group = engine_ranks_world ? 0 : 7,
                                                .job = "engine",
                                                .bind_host = "127.0.0.1",
                                                .places = rank->places,
                                                .all_gather = rank_all_gather,
                                                .all_gather_arg = rank,
                                                .reproducible = engine_ranks_reproducible};
    CHECK(disti_engine_open(&rank->config, &config, &rank->engine) == DIST_OK);
}

void engine_rank_post(struct engine_rank *rank, struct dist_call call, struct dist_ticket *ticket)
{
    if (call.collective != DIST_COLL_SEND && call.collective != DIST_COLL_RECV)
        call.sequence = rank->sequence++;
    ticket->status = DIST_IN_PROGRESS;
    CHECK(disti_engine_post(rank->engine, &call, ticket) == DIST_OK);
}

dist_status engine_rank_wait(struct engine_rank *rank, struct dist_ticket *ticket)
{
    int64_t deadline = disti_deadline_ms(RANK_WAIT_MS);

    while (ticket->status == DIST_IN_PROGRESS) {
        if (disti_engine_progress(rank->engine) < 0)
            break;
        sched_yield();
        CHECK(!disti_expired(deadline));
    }
    rank->broken = rank->broken || ticket->status != DIST_OK;
    return ticket->status;
}

void engine_rank_call(struct engine_rank *rank, struct dist_call call)
{
    struct dist_ticket ticket;

    engine_rank_post(rank, call, &ticket);
    CHECK(engine_rank_wait(rank, &ticket) == DIST_OK);
}

void engine_rank_stays(struct engine_rank *rank, const struct dist_ticket *ticket)
{
    for (int i = 0; i < RANK_POLLS; i++) {
        rank_progress(rank);
        CHECK(ticket->status == DIST_IN_PROGRESS);
    }
}

struct dist_call send_to(int peer, int tag, const int32_t *data, size_t count)
{
    return (struct dist_call){.collective = DIST_COLL_SEND,
                              .in = data,
                              .count = count,
                              .dtype = DIST_INT32,
                              .root = peer,
                              .tag = tag};
}

struct dist_call recv_from(int peer, int tag, int32_t *data, size_t count, int *source)
{
    return (struct dist_call){.collective = DIST_COLL_RECV,
                              .out = data,
                              .count = count,
                              .dtype = DIST_INT32,
                              .root = peer,
                              .tag = tag,
                              .source = source};
}

void send_one(struct engine_rank *rank, int peer, int tag, int32_t value)
{
    engine_rank_call(rank, send_to(peer, tag, &value, 1));
}

int32_t recv_one(struct engine_rank *rank, int peer, int tag, int *source)
{
    int32_t value = -1;

    engine_rank_call(rank, recv_from(peer, tag, &value, 1, source));
    return value;
}

static void rank_run(int number, void *arg)
{
    struct engine_shared *shared = arg;
    struct engine_rank rank = {.rank = number, .ranks = shared->ranks, .shared = shared};

    rank_open(&rank);
    shared->fn(&rank);
    engine_rank_meet(&rank);
    disti_engine_close(rank.engine);
}

void engine_ranks_run(int count, const char *transport, engine_rank_fn fn)
{
    struct engine_shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct ranks ranks;

    assert_ptr_not_equal(shared, MAP_FAILED);
    shared->transport = transport;
    shared->ranks = count;
    shared->fn = fn;
    ranks_start(&ranks, count, rank_run, shared);
    ranks_finish(&ranks);
    for (int r = 0; r < count; r++)
        assert_int_equal(ranks.codes[r], 0);
    munmap(shared, sizeof(*shared));
}
