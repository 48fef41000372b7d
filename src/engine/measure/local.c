/* SPDX-License-Identifier: BSD-3-Clause */
/* What one process can find out by itself: how fast it copies, reduces, gives its CPU away. */
#include "base/clock.h"
#include "base/dtype.h"
#include "base/thread.h"
#include "engine/measure/tune.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Vectors that are soon copied and do not fit into most second-level caches; into no cache. */
#define LOCAL_BYTES_HASTE ((size_t)2 << 20)
#define LOCAL_BYTES_CARE ((size_t)8 << 20)
/* Yields of each of two threads that share a CPU. */
#define LOCAL_YIELDS 2000
#define LOCAL_START_NS (10 * 1000 * 1000)

int64_t disti_tune_each_ns(enum tune_effort effort)
{
    return effort == TUNE_CARE ? 20 * 1000 * 1000 : 1000 * 1000;
}

/* The compiler must believe that somebody reads what was written there. */
static void local_use(char *memory)
{
    __asm__ volatile("" : : "r"(memory) : "memory");
}

/* Two vectors; their pages are there. */
struct local_vectors {
    char *memory; /* NULL: there is none */
    size_t bytes; /* each */
};

static struct local_vectors local_vectors(enum tune_effort effort)
{
    struct local_vectors vectors = {.bytes =
                                        effort == TUNE_CARE ? LOCAL_BYTES_CARE : LOCAL_BYTES_HASTE};

    vectors.memory = malloc(2 * vectors.bytes);
    if (vectors.memory)
        memset(vectors.memory, 0, 2 * vectors.bytes);
    return vectors;
}

static void local_copy(const struct local_vectors *vectors)
{
    memcpy(vectors->memory, vectors->memory + vectors->bytes, vectors->bytes);
    local_use(vectors->memory);
}

static void local_reduce(const struct local_vectors *vectors)
{
    char *memory = vectors->memory;

    disti_reduce(DIST_FLOAT32, DIST_SUM, memory, memory, memory + vectors->bytes,
                 vectors->bytes / sizeof(float));
}

/* The best of as many as there is time for, and of two at least; bytes a second. */
static double local_speed(void (*work)(const struct local_vectors *vectors),
                          const struct local_vectors *vectors, int64_t each_ns)
{
    int64_t now = disti_now_ns(), until = now + each_ns, best = INT64_MAX;

    for (int times = 0; times < 2 || now < until; times++) {
        int64_t begin = now;

        work(vectors);
        now = disti_now_ns();
        best = now - begin < best ? now - begin : best;
    }
    return (double)vectors->bytes / ((double)(best ? best : 1) * 1e-9);
}

double disti_tune_copy(int64_t ns)
{
    struct local_vectors vectors = local_vectors(TUNE_CARE);
    int64_t begin = disti_now_ns(), end = begin;
    double bytes = 0;

    while (vectors.memory && end - begin < ns) {
        local_copy(&vectors);
        bytes += (double)vectors.bytes;
        end = disti_now_ns();
    }
    free(vectors.memory);
    return bytes > 0 ? bytes / ((double)(end - begin) * 1e-9) : 0;
}

/* ---- from thread to thread ---- */

/* Two threads on one CPU; both yield once both are there. */
struct local_switch {
    int cpu;
    atomic_int here;
    atomic_bool failed;
    int64_t ended_ns[2];
    int64_t began_ns[2];
};

struct local_switcher {
    struct local_switch *both;
    int number;
};

static void *local_yield(void *arg)
{
    const struct local_switcher *me = arg;
    struct local_switch *both = me->both;
    int64_t until = disti_now_ns() + LOCAL_START_NS;
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(both->cpu, &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof(set), &set) != 0)
        atomic_store(&both->failed, true);
    atomic_fetch_add(&both->here, 1);
    while (atomic_load(&both->here) < 2 && disti_now_ns() < until)
        sched_yield();
    both->began_ns[me->number] = disti_now_ns();
    for (int i = 0; i < LOCAL_YIELDS && !atomic_load(&both->failed); i++)
        sched_yield();
    both->ended_ns[me->number] = disti_now_ns();
    return NULL;
}

/* Seconds from one to the other; below 0: it could not be measured. */
static double local_switch(void)
{
    struct local_switch both = {.cpu = sched_getcpu()};
    struct local_switcher switchers[2] = {{&both, 0}, {&both, 1}};
    pthread_t threads[2];
    int started = 0;

    if (both.cpu < 0 || both.cpu >= CPU_SETSIZE)
        return -1;
    while (started < 2 &&
           disti_thread_create(&threads[started], local_yield, &switchers[started]) == 0)
        started++;
    if (started < 2)
        atomic_store(&both.failed, true);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    if (atomic_load(&both.failed) || atomic_load(&both.here) < 2)
        return -1;
    /* While both are at it each of the first one's yields takes two changes. */
    return (double)(both.ended_ns[0] - both.began_ns[0]) * 1e-9 / (2 * LOCAL_YIELDS);
}

void disti_tune_local(enum tune_effort effort, struct disti_cost *cost)
{
    int64_t each_ns = disti_tune_each_ns(effort);
    struct local_vectors vectors = local_vectors(effort);
    double seconds;

    if (vectors.memory) {
        double usual = cost->node_bytes_per_second / cost->copy_bytes_per_second;

        cost->copy_bytes_per_second = local_speed(local_copy, &vectors, each_ns);
        cost->reduce_bytes_per_second = local_speed(local_reduce, &vectors, each_ns);
        cost->node_bytes_per_second = usual * cost->copy_bytes_per_second;
    }
    free(vectors.memory);
    if (effort != TUNE_CARE)
        return;
    seconds = local_switch();
    if (seconds > 0)
        cost->switch_s = seconds;
}
