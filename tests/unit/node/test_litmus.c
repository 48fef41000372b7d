/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Litmus tests: results that the memory orders of C11 forbid do not occur between two processes
 * that have mapped one segment at two addresses. As in herdtools' litmus, a batch is many rounds
 * without synchronization, so that the rounds of both processes overlap in time.
 */
#include "unit.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 4096, BATCHES = 512, LONG_BATCHES = 8192, SPINS = 64, WORDS = 8 };

/* Polls before a yield: enough for both processes to be on a CPU when a batch begins. */
enum { MEET_SPINS = 20000 };

/* Two atomic words, each on its own cache line, and the data that one process publishes by them. */
struct cell {
    _Alignas(64) atomic_uint x;
    _Alignas(64) atomic_uint y;
    _Alignas(64) uint64_t payload[WORDS];
};

struct litmus {
    _Alignas(64) atomic_uint arrived;
    _Alignas(64) unsigned seen[2][ROUNDS]; /* results of each process */
    struct cell cells[ROUNDS];
};

/*
 * Runs one round of a batch in process 0 or 1. batch: its number, from 1. Returns the result of the
 * process.
 */
typedef unsigned (*litmus_fn)(int process, struct cell *cell, unsigned batch);

/* Returns the number of rounds of a batch with forbidden results. */
typedef long (*litmus_check)(struct litmus *litmus, unsigned batch);

static int64_t now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

/* A barrier of both processes. meeting: number of the barrier, from 1. False: timeout. */
static bool meet(struct litmus *litmus, unsigned meeting)
{
    int64_t until = now_s() + UNIT_LIMIT;
    unsigned spins = 0;

    atomic_fetch_add_explicit(&litmus->arrived, 1, memory_order_acq_rel);
    while (atomic_load_explicit(&litmus->arrived, memory_order_acquire) < 2 * meeting) {
        if (++spins % MEET_SPINS == 0)
            sched_yield();
        if (spins % (MEET_SPINS * 16) == 0 && now_s() > until)
            return false;
    }
    return true;
}

static unsigned batches(void)
{
    const char *text = getenv("CHECK_LONG");

    return text && strcmp(text, "1") == 0 ? LONG_BATCHES : BATCHES;
}

/* Pins the process to a CPU of its own, if there are two. */
static void pin(int process)
{
    cpu_set_t all, one;
    int skipped = 0;

    if (sched_getaffinity(0, sizeof(all), &all) < 0 || CPU_COUNT(&all) < 2)
        return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all) || skipped++ < process)
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof(one), &one);
        return;
    }
}

/* Runs all batches of one process. Process 0 returns the number of forbidden results, process 1
 * returns 0. -1: the other process does not arrive. */
static long litmus_process(struct litmus *litmus, int process, litmus_fn fn, litmus_check check)
{
    unsigned meeting = 0;
    long wrong = 0;

    for (unsigned batch = 1; batch <= batches(); batch++) {
        if (!meet(litmus, ++meeting))
            return -1;
        for (int i = 0; i < ROUNDS; i++)
            litmus->seen[process][i] = fn(process, &litmus->cells[i], batch);
        if (!meet(litmus, ++meeting))
            return -1;
        if (process == 0)
            wrong += check(litmus, batch);
    }
    return wrong;
}

struct litmus_peer {
    struct disti_segment_name name;
    litmus_fn fn;
};

static int litmus_peer_run(void *arg, int channel)
{
    struct litmus_peer *peer = arg;
    void *memory = NULL;

    (void)channel;
    alarm(5 * UNIT_LIMIT);
    UNIT_CHECK(disti_segment_map(&peer->name, &memory) == DIST_OK);
    pin(1);
    UNIT_CHECK(litmus_process(memory, 1, peer->fn, NULL) == 0);
    return 0;
}

/* Runs a test in this process and a forked one. Returns the number of forbidden results. */
static long litmus_run(litmus_fn fn, litmus_check check)
{
    struct litmus *litmus = unit_alloc(sizeof(*litmus));
    struct litmus_peer peer = {.name = unit_name(litmus), .fn = fn};
    struct unit_peer other = unit_fork(litmus_peer_run, &peer);
    cpu_set_t before;
    long wrong;

    sched_getaffinity(0, sizeof(before), &before);
    pin(0);
    wrong = litmus_process(litmus, 0, fn, check);
    sched_setaffinity(0, sizeof(before), &before);
    unit_join(&other);
    assert_int_equal(disti_segment_free(litmus), DIST_OK);
    assert_true(wrong >= 0);
    return wrong;
}

static long check_seen(struct litmus *litmus, unsigned batch)
{
    long wrong = 0;

    (void)batch;
    for (int i = 0; i < ROUNDS; i++)
        wrong += litmus->seen[0][i] != 0 || litmus->seen[1][i] != 0;
    return wrong;
}

/* ---- message passing: a process that reads the flag also reads the payload ---- */

static unsigned message(int process, struct cell *cell, unsigned batch)
{
    uint64_t copy[WORDS], word = (uint64_t)batch << 32 | batch;

    if (process == 0) {
        for (int i = 0; i < WORDS; i++)
            copy[i] = word;
        memcpy(cell->payload, copy, sizeof(copy));
        atomic_store_explicit(&cell->x, batch, memory_order_release);
        return 0;
    }
    for (int spins = 0; atomic_load_explicit(&cell->x, memory_order_acquire) != batch; spins++) {
        if (spins == SPINS)
            return 0;
    }
    memcpy(copy, cell->payload, sizeof(copy));
    for (int i = 0; i < WORDS; i++) {
        if (copy[i] != word)
            return 1;
    }
    return 0;
}

static void test_message_passing(void **state)
{
    (void)state;
    assert_int_equal(litmus_run(message, check_seen), 0);
}

/* ---- store buffering: if both processes store, then load, one reads the other's value ---- */

static unsigned buffering_ordered(int process, struct cell *cell, unsigned batch)
{
    atomic_uint *mine = process ? &cell->y : &cell->x, *other = process ? &cell->x : &cell->y;

    atomic_store_explicit(mine, batch, memory_order_seq_cst);
    return atomic_load_explicit(other, memory_order_seq_cst);
}

static unsigned buffering_exchanged(int process, struct cell *cell, unsigned batch)
{
    atomic_uint *mine = process ? &cell->y : &cell->x, *other = process ? &cell->x : &cell->y;

    atomic_exchange_explicit(mine, batch, memory_order_seq_cst);
    return atomic_load_explicit(other, memory_order_seq_cst);
}

static unsigned buffering_weak(int process, struct cell *cell, unsigned batch)
{
    atomic_uint *mine = process ? &cell->y : &cell->x, *other = process ? &cell->x : &cell->y;

    atomic_store_explicit(mine, batch, memory_order_release);
    return atomic_load_explicit(other, memory_order_acquire);
}

/* Counts the rounds in which both processes read an older value than this batch's. */
static long check_buffering(struct litmus *litmus, unsigned batch)
{
    long wrong = 0;

    for (int i = 0; i < ROUNDS; i++)
        wrong += litmus->seen[0][i] != batch && litmus->seen[1][i] != batch;
    return wrong;
}

static void test_store_buffering(void **state)
{
    (void)state;
    assert_int_equal(litmus_run(buffering_ordered, check_buffering), 0);
    assert_int_equal(litmus_run(buffering_exchanged, check_buffering), 0);
}

/* With release and acquire only, processors do produce the forbidden result, so the previous test
 * is able to fail. */
static void test_store_buffering_happens(void **state)
{
    long weak;

    (void)state;
    weak = litmus_run(buffering_weak, check_buffering);
    print_message("without seq_cst: %ld of %ld rounds\n", weak, (long)batches() * ROUNDS);
    if (weak == 0)
        skip();
}

/* ---- coherence: a word never changes back to an older value ---- */

static unsigned coherence(int process, struct cell *cell, unsigned batch)
{
    unsigned first, second;

    if (process == 0) {
        atomic_store_explicit(&cell->x, 2 * batch, memory_order_relaxed);
        atomic_store_explicit(&cell->x, 2 * batch + 1, memory_order_relaxed);
        return 0;
    }
    first = atomic_load_explicit(&cell->x, memory_order_relaxed);
    second = atomic_load_explicit(&cell->x, memory_order_relaxed);
    return second < first;
}

static void test_coherence(void **state)
{
    (void)state;
    assert_int_equal(litmus_run(coherence, check_seen), 0);
}

/* ---- counting: no increment is lost, and the second process reads what the first wrote ---- */

static unsigned counting(int process, struct cell *cell, unsigned batch)
{
    unsigned before;

    cell->payload[process] = batch;
    before = atomic_fetch_add_explicit(&cell->y, 1, memory_order_acq_rel);
    return before == 2 * batch - 1 && cell->payload[!process] != batch;
}

static long check_counting(struct litmus *litmus, unsigned batch)
{
    long wrong = check_seen(litmus, batch);

    for (int i = 0; i < ROUNDS; i++)
        wrong += atomic_load_explicit(&litmus->cells[i].y, memory_order_relaxed) != 2 * batch;
    return wrong;
}

static void test_counting(void **state)
{
    (void)state;
    assert_int_equal(litmus_run(counting, check_counting), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_message_passing),
        cmocka_unit_test(test_store_buffering),
        cmocka_unit_test(test_store_buffering_happens),
        cmocka_unit_test(test_coherence),
        cmocka_unit_test(test_counting),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
