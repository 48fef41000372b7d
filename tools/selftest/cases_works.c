/* SPDX-License-Identifier: BSD-3-Clause */
/* Works: polled, waited for in part, told of their end, and started again and again. */
#include "battery.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define WORKS_COUNT 5003

/* An all-reduce of int32 in place, with its result checked at the end. */
struct works_data {
    struct data data;
    int32_t *numbers;
};

static void works_fill(struct battery *b, struct works_data *d)
{
    if (!d->numbers)
        d->numbers = battery_alloc(WORKS_COUNT, sizeof(*d->numbers));
    d->data = (struct data){.seed = ++b->seed, .dtype = DIST_INT32, .op = DIST_SUM};
    data_fill(&d->data, b->rank, 0, WORKS_COUNT, d->numbers);
}

static void works_check(struct battery *b, const struct works_data *d, const char *what)
{
    double expected, found;

    b->checks++;
    for (size_t i = 0; i < WORKS_COUNT; i++) {
        if (data_reduced(&d->data, b->ranks, i, &d->numbers[i], &expected, &found))
            continue;
        battery_fault(b, "%s: element %zu is %.9g, should be %.9g", what, i, found, expected);
        return;
    }
}

static dist_work *works_start(struct battery *b, struct works_data *d)
{
    dist_work *work = NULL;

    works_fill(b, d);
    battery_ok(b,
               dist_all_reduce_async(b->group, d->numbers, d->numbers, WORKS_COUNT, DIST_INT32,
                                     DIST_SUM, &work),
               "starting a work");
    return work;
}

static void works_polled(struct battery *b)
{
    struct works_data d = {.numbers = NULL};
    dist_work *work = works_start(b, &d);
    bool done = false;

    while (work && !done && battery_ok(b, dist_test(work, &done), "test"))
        sched_yield();
    if (work && battery_ok(b, dist_wait(work), "wait after test"))
        works_check(b, &d, "a work that was polled");
    free(d.numbers);
}

static void works_waited_for_in_part(struct battery *b)
{
    struct works_data d = {.numbers = NULL};
    dist_work *work = works_start(b, &d);
    dist_status status = DIST_IN_PROGRESS;

    while (work && status == DIST_IN_PROGRESS)
        status = dist_wait_for(work, 1);
    if (work && battery_ok(b, status, "wait_for"))
        works_check(b, &d, "a work that was waited for in part");
    free(d.numbers);
}

/* A work that cannot end stays as it was; after its counterpart has come it ends. */
static void works_in_progress(struct battery *b)
{
    int32_t number = -1, mine = b->rank;
    int tag = b->lacks & DIST_LACKS_TAGS ? 0 : 7;
    dist_work *work = NULL;

    if (dist_backend_query(b->backend, DIST_COLL_RECV, DIST_INT32, DIST_SUM) != DIST_OK)
        return;
    battery_ok(b, dist_irecv(b->group, &number, 1, DIST_INT32, b->rank, tag, NULL, &work), "irecv");
    b->checks++;
    if (work && dist_wait_for(work, 0) != DIST_IN_PROGRESS)
        battery_fault(b, "a receive ended before its message was sent");
    else
        battery_ok(b, dist_send(b->group, &mine, 1, DIST_INT32, b->rank, tag), "send to oneself");
    if (work && battery_ok(b, dist_wait(work), "wait") && number != mine)
        battery_fault(b, "a receive gave %d, not %d", number, mine);
}

struct works_told {
    int times;
    dist_status status;
};

static void works_tell(void *arg, dist_status status)
{
    struct works_told *told = arg;

    told->status = status;
    __atomic_add_fetch(&told->times, 1, __ATOMIC_RELEASE);
}

static void works_told_of_their_end(struct battery *b)
{
    struct works_told told = {.status = DIST_IN_PROGRESS};
    struct works_data d = {.numbers = NULL};
    dist_work *work = works_start(b, &d);

    if (work)
        battery_ok(b, dist_on_complete(work, works_tell, &told), "on_complete");
    if (work && battery_ok(b, dist_wait(work), "wait")) {
        works_check(b, &d, "a work that tells its end");
        b->checks++;
        if (__atomic_load_n(&told.times, __ATOMIC_ACQUIRE) != 1 || told.status != DIST_OK)
            battery_fault(b, "on_complete: called %d times, with %s", told.times,
                          dist_status_string(told.status));
    }
    free(d.numbers);
}

static void works_persistent(struct battery *b)
{
    struct works_data d = {.numbers = NULL};
    dist_work *work = NULL;

    works_fill(b, &d);
    if (!battery_ok(b,
                    dist_all_reduce_init(b->group, d.numbers, d.numbers, WORKS_COUNT, DIST_INT32,
                                         DIST_SUM, &work),
                    "all_reduce_init"))
        return;
    for (int round = 0; round < 4; round++) {
        works_fill(b, &d);
        if (!battery_ok(b, dist_start(work), "start"))
            break;
        if (battery_ok(b, dist_wait(work), "wait for a persistent work"))
            works_check(b, &d, "a persistent work");
    }
    battery_ok(b, dist_work_free(work), "work_free");
    free(d.numbers);
}

void cases_works(struct battery *b)
{
    works_polled(b);
    works_waited_for_in_part(b);
    works_in_progress(b);
    works_told_of_their_end(b);
    works_persistent(b);
}
