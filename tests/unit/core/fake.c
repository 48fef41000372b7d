/* SPDX-License-Identifier: BSD-3-Clause */
/* A group with a fake backend, whose calls end when the test says so, and which counts violations
 * of the backend contract. */
#include "fake.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Called at the beginning of every backend function. Counts a violation if another function runs at
 * the same time, or if the backend is armed and the function is not disarm. */
static void fake_begin(struct fake *fake, bool may_be_armed)
{
    if (atomic_flag_test_and_set(&fake->busy) || (fake->armed && !may_be_armed))
        atomic_fetch_add(&fake->violations, 1);
}

static void fake_end(struct fake *fake)
{
    atomic_flag_clear(&fake->busy);
}

static void fake_record(struct fake *fake, char what)
{
    size_t length = strlen(fake->history);

    if (length + 1 < sizeof(fake->history))
        fake->history[length] = what;
}

static dist_status fake_query(const void *state, dist_collective collective, dist_dtype dtype,
                              dist_op op)
{
    (void)state;
    (void)collective;
    (void)dtype;
    (void)op;
    return DIST_OK;
}

static dist_manner fake_manner(const void *state, const struct dist_call *call)
{
    const struct fake *fake = state;

    if (fake->stages)
        return DIST_MANNER_STAGED;
    return call->collective == DIST_COLL_BARRIER ? DIST_MANNER_HOST : DIST_MANNER_STREAM;
}

static dist_status fake_join(void *state, struct dist_ticket *ticket, void *stream)
{
    struct fake *fake = state;

    fake_begin(fake, false);
    fake_record(fake, 'j');
    fake->joined = -1;
    for (int n = 0; n < atomic_load(&fake->posted); n++)
        fake->joined = fake->tickets[n] == ticket ? n : fake->joined;
    if (fake->joined < 0 || ticket->status != DIST_IN_PROGRESS)
        atomic_fetch_add(&fake->violations, 1);
    fake->join_stream = stream;
    fake_end(fake);
    return fake->refuse_join ? disti_fail(fake->refuse_join, "the fake does not join") : DIST_OK;
}

static dist_status fake_batch(void *state, bool begin)
{
    fake_begin(state, false);
    fake_record(state, begin ? '(' : ')');
    fake_end(state);
    return DIST_OK;
}

static dist_status fake_post(void *state, const struct dist_call *call, struct dist_ticket *ticket)
{
    struct fake *fake = state;
    dist_status status = fake->refuse_post;
    int n = atomic_load(&fake->posted);

    fake_begin(fake, false);
    if (status != DIST_OK) {
        status = disti_fail(status, "the fake refuses");
    } else {
        fake->calls[n] = *call;
        fake_record(fake, '.');
        if (atomic_load(&fake->released[n]))
            ticket->status = DIST_OK; /* the call ends immediately */
        else
            fake->tickets[n] = ticket;
        atomic_store(&fake->posted, n + 1);
    }
    fake_end(fake);
    return status;
}

static bool fake_may_end(struct fake *fake, int n)
{
    return fake->tickets[n] && fake->tickets[n]->status == DIST_IN_PROGRESS &&
           atomic_load(&fake->released[n]);
}

/* Ends one released call, the latest first, so that the library must restore the order. */
static int fake_progress(void *state)
{
    struct fake *fake = state;
    int failure = atomic_exchange(&fake->failure, 0), moved = 0;
    const int64_t begun = disti_now_ns();

    fake_begin(fake, false);
    while (disti_now_ns() - begun < fake->poll_ns)
        continue;
    atomic_fetch_add(&fake->polls, 1);
    atomic_fetch_add(&fake->polls_elsewhere, !pthread_equal(pthread_self(), fake->opener));
    for (int n = atomic_load(&fake->posted) - 1; n >= 0 && !moved && !failure; n--) {
        if (!fake_may_end(fake, n))
            continue;
        fake->tickets[n]->status = DIST_OK;
        fake->tickets[n] = NULL;
        moved++;
    }
    fake_end(fake);
    return failure ? (int)disti_fail((dist_status)failure, "the fake broke") : moved;
}

static void fake_abort(void *state)
{
    struct fake *fake = state;

    fake_begin(fake, false);
    atomic_fetch_add(&fake->aborted, 1);
    memset(fake->tickets, 0, sizeof(fake->tickets));
    fake_end(fake);
}

static int fake_arm(void *state, int *fds, int room)
{
    struct fake *fake = state;
    int result = fake->blind ? DIST_ARM_BLIND : 1;

    fake_begin(fake, false);
    for (int n = 0; n < atomic_load(&fake->posted); n++) {
        if (fake_may_end(fake, n))
            result = DIST_ARM_READY;
    }
    if (atomic_load(&fake->failure))
        result = DIST_ARM_READY;
    fake->armed = true;
    if (room > 0)
        fds[0] = fake->fd;
    fake_end(fake);
    return result;
}

static void fake_disarm(void *state)
{
    struct fake *fake = state;
    uint64_t times;

    fake_begin(fake, true);
    fake->armed = false;
    (void)!read(fake->fd, &times, sizeof(times));
    fake_end(fake);
}

static void fake_describe(const void *state, char *text, size_t size)
{
    (void)state;
    snprintf(text, size, "rank 1");
}

static dist_status fake_prepare(void *state, const struct dist_call *call, void **prepared_p)
{
    struct fake *fake = state;

    (void)call;
    fake_begin(fake, false);
    fake->prepared++;
    *prepared_p = fake;
    fake_end(fake);
    return DIST_OK;
}

static void fake_release_prepared(void *state, void *prepared)
{
    struct fake *fake = state;

    fake_begin(fake, false);
    fake->released_prepared += prepared == fake;
    fake_end(fake);
}

static void *fake_alloc(void *state, size_t bytes)
{
    struct fake *fake = state;
    void *memory;

    fake_begin(fake, false);
    memory = fake->out_of_memory ? NULL : calloc(1, bytes);
    fake->allocations += memory != NULL;
    fake_end(fake);
    return memory;
}

static void fake_free(void *state, void *memory)
{
    struct fake *fake = state;

    fake_begin(fake, false);
    fake->allocations--;
    free(memory);
    fake_end(fake);
}

static void fake_close_backend(void *state)
{
    (void)state;
}

static const struct dist_backend fake_backend = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_backend),
    .name = "fake",
    .post = fake_post,
    .progress = fake_progress,
    .abort = fake_abort,
    .arm = fake_arm,
    .disarm = fake_disarm,
    .describe = fake_describe,
    .prepare = fake_prepare,
    .release = fake_release_prepared,
    .close = fake_close_backend,
};

struct dist_group *fake_open(struct fake *fake)
{
    struct dist_group *group = calloc(1, sizeof(*group));

    fake->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    fake->backend = fake_backend;
    fake->opener = pthread_self();
    if (fake->cannot_arm) {
        fake->backend.arm = NULL;
        fake->backend.disarm = NULL;
    }
    if (fake->has_memory) {
        fake->backend.alloc = fake_alloc;
        fake->backend.free = fake_free;
    }
    if (fake->streams) {
        fake->backend.query = fake_query;
        fake->backend.manner = fake_manner;
        fake->backend.join = fake_join;
        fake->backend.batch = fake_batch;
    }
    fake->joined = -1;
    fake->world.log.silent = true;
    pthread_mutex_init(&fake->world.lock, NULL);
    group->world = &fake->world;
    group->log = &fake->world.log;
    group->world_size = 2;
    group->timeout_ms = fake->timeout_ms ? fake->timeout_ms : 20000;
    group->backend = &fake->backend;
    group->state = fake;
    group->policy = (struct disti_wait_policy){
        .spins = fake->spins ? UINT32_MAX : 50, .yield_ns = 50000, .sleep_ms = 100};
    group->lost_rank = -1;
    group->cause = calloc(1, GROUP_TEXT);
    group->lost_text = calloc(1, GROUP_TEXT);
    disti_group_open_works(group);
    return group;
}

dist_status fake_close(struct fake *fake, struct dist_group *group)
{
    dist_status status = disti_group_drain(group);

    disti_group_release(group);
    close(fake->fd);
    return status;
}

static void fake_ring(struct fake *fake)
{
    uint64_t one = 1;

    (void)!write(fake->fd, &one, sizeof(one));
}

void fake_release(struct fake *fake, int post)
{
    atomic_store(&fake->released[post], true);
    fake_ring(fake);
}

void fake_break(struct fake *fake, dist_status status)
{
    atomic_store(&fake->failure, (int)status);
    fake_ring(fake);
}

struct dist_work *fake_start(struct dist_group *group, dist_collective collective)
{
    const struct disti_start start = {.call = {.collective = collective, .dtype = DIST_UINT8}};
    struct dist_work *work = NULL;

    disti_work_post(group, &start, &work);
    return work;
}

static int fake_prepare_test(void **state, const char *thread)
{
    *state = calloc(1, sizeof(struct fake));
    return setenv("DIST_PROGRESS_THREAD", thread, 1);
}

int fake_without_thread(void **state)
{
    return fake_prepare_test(state, "0");
}

int fake_with_thread(void **state)
{
    return fake_prepare_test(state, "1");
}

int fake_finish(void **state)
{
    struct fake *fake = *state;
    int violations = atomic_load(&fake->violations);

    free(fake);
    if (violations)
        fprintf(stderr, "%d violations of the backend contract\n", violations);
    return violations;
}

void fake_sleep(int ms)
{
    disti_sleep_ns(ms * INT64_C(1000000));
}
