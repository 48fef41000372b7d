/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs an order on one rank: buffers, a checked call, warm-up, samples, a checked call. */
#include "measure.h"

#include "pattern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What an out is full of before a checked call: no result looks like it. */
#define MEASURE_POISON 0xa5

struct measure {
    struct driver *driver;
    struct buffers *buffers;
    const struct order *order;
    int next;     /* set */
    char *mirror; /* of one set, where the host cannot touch the buffers; else NULL */
    enum outcome outcome;
    char *reason;
};

double measure_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static struct pattern measure_pattern(const struct measure *m, unsigned seed)
{
    return (struct pattern){.dtype = m->order->dtype,
                            .op = m->order->op,
                            .reduces = m->order->operation->reduces,
                            .ranks = m->driver->ranks,
                            .seed = seed};
}

/* ---- a set as the host sees it: the memory itself, or its mirror ---- */

static char *measure_set(const struct measure *m, int set)
{
    return buffers_set(m->buffers, set);
}

static void *measure_in(const struct measure *m, int set)
{
    return m->mirror ? m->mirror + m->buffers->in_offset : buffers_in(m->buffers, set);
}

static void *measure_out(const struct measure *m, int set)
{
    return m->mirror ? m->mirror + m->buffers->out_offset : buffers_out(m->buffers, set);
}

static dist_status measure_show(const struct measure *m, int set)
{
    return m->mirror ? m->driver->put(m->driver, measure_set(m, set), m->mirror, m->buffers->stride)
                     : DIST_OK;
}

static dist_status measure_look(const struct measure *m, int set)
{
    return m->mirror ? m->driver->get(m->driver, m->mirror, measure_set(m, set), m->buffers->stride)
                     : DIST_OK;
}

/* ---- fresh data ---- */

/* Fills what this rank gives, and poisons what it gets. */
static void measure_fill(const struct measure *m, const struct pattern *pattern, int set)
{
    const struct order *order = m->order;
    struct buffers *b = m->buffers;
    int rank = m->driver->rank;
    bool gives = true;
    size_t size = dist_dtype_size(order->dtype);
    void *in = measure_in(m, set), *out = measure_out(m, set);
    size_t bytes = order->operation->in == PART_NONE ? b->out_bytes : b->in_bytes;

    memset(out, MEASURE_POISON, b->out_bytes);
    if (order->operation->id == OPERATION_broadcast || order->operation->in == PART_WHOLE)
        gives = !order->operation->rooted || order->operation->reduces || rank == order->root;
    if (gives)
        pattern_fill(pattern, rank, 0, order->operation->in == PART_NONE ? out : in, bytes / size);
}

/* ---- what should be there ---- */

/* Blocks of all ranks, one after the other: block s begins with that rank's element `first`. */
static bool measure_blocks(const struct measure *m, const struct pattern *pattern, size_t first,
                           const char *out, size_t *bad_p)
{
    size_t count = order_count(m->order, m->driver->ranks);
    size_t block = order_block(m->order, m->driver->ranks);

    for (int s = 0; s < m->driver->ranks; s++) {
        if (!pattern_is(pattern, s, first, out + (size_t)s * block, count, bad_p)) {
            *bad_p += (size_t)s * count;
            return false;
        }
    }
    return true;
}

/* Of messages: 1 hears from 0, and but for bw 0 hears from 1. */
static bool measure_messages(const struct measure *m, const struct pattern *pattern,
                             const void *out, size_t *bad_p)
{
    int rank = m->driver->rank;

    if (rank > 1 || (rank == 0 && m->order->operation->id == OPERATION_bw))
        return true;
    return pattern_is(pattern, 1 - rank, 0, out,
                      m->buffers->out_bytes / dist_dtype_size(m->order->dtype), bad_p);
}

static bool measure_is_right(const struct measure *m, const struct pattern *pattern, int set,
                             size_t *bad_p)
{
    const struct order *order = m->order;
    const struct operation *operation = order->operation;
    int rank = m->driver->rank;
    const void *out = measure_out(m, set);
    size_t count = m->buffers->out_bytes / dist_dtype_size(order->dtype);
    size_t mine = (size_t)rank * order_count(order, m->driver->ranks);

    if (operation->layout == LAYOUT_MESSAGES)
        return measure_messages(m, pattern, out, bad_p);
    if (operation->rooted && operation->out == PART_WHOLE && operation->id != OPERATION_broadcast &&
        rank != order->root)
        return true;
    if (operation->reduces)
        return pattern_is_reduced(pattern, operation->out == PART_BLOCK ? mine : 0, out, count,
                                  bad_p);
    if (operation->id == OPERATION_broadcast)
        return pattern_is(pattern, order->root, 0, out, count, bad_p);
    if (operation->out == PART_BLOCK) /* scatter */
        return pattern_is(pattern, order->root, mine, out, count, bad_p);
    return measure_blocks(m, pattern, operation->in == PART_WHOLE ? mine : 0, out, bad_p);
}

/* ---- running ---- */

static int measure_end(struct measure *m, dist_status status)
{
    if (status == DIST_OK)
        return 0;
    m->outcome = status == DIST_ERR_UNSUPPORTED ? OUTCOME_UNSUPPORTED : OUTCOME_FAILED;
    snprintf(m->reason, MEASURE_REASON, "%s", m->driver->error(m->driver));
    return -1;
}

static int measure_call(struct measure *m)
{
    int set = m->next;

    m->next = set + 1 == m->buffers->sets ? 0 : set + 1;
    return measure_end(m, m->driver->call(m->driver, m->order, buffers_in(m->buffers, set),
                                          buffers_out(m->buffers, set)));
}

/* A checked call on the next set; -1: the run has ended. */
static int measure_checked(struct measure *m, unsigned seed)
{
    struct pattern pattern = measure_pattern(m, seed);
    size_t bad = 0;
    int set = m->next;

    if (m->order->operation->layout == LAYOUT_NOTHING)
        return measure_call(m);
    measure_fill(m, &pattern, set);
    /* Another may write here as soon as it is in the call. */
    if (measure_end(m, measure_show(m, set)) != 0 ||
        measure_end(m, m->driver->barrier(m->driver)) != 0 || measure_call(m) != 0 ||
        measure_end(m, measure_look(m, set)) != 0)
        return -1;
    if (m->outcome == OUTCOME_TOOK && !measure_is_right(m, &pattern, set, &bad)) {
        m->outcome = OUTCOME_WRONG;
        snprintf(m->reason, MEASURE_REASON, "rank %d: element %zu of the result is wrong",
                 m->driver->rank, bad);
    }
    /* In place, sums of sums grow without end; zeros stay. */
    memset(measure_out(m, set), 0, m->buffers->out_bytes);
    memset(measure_in(m, set), 0, m->buffers->in_bytes);
    return measure_end(m, measure_show(m, set));
}

/* Calls that a stream orders have ended only then. */
static int measure_synchronize(struct measure *m)
{
    return m->driver->synchronize ? measure_end(m, m->driver->synchronize(m->driver)) : 0;
}

/* One call, and its time; the ranks begin it together. */
static int measure_one(struct measure *m, double *time_p)
{
    bool meets = m->order->operation->layout != LAYOUT_NOTHING;
    double start;

    if (meets && measure_end(m, m->driver->barrier(m->driver)) != 0)
        return -1;
    start = measure_now();
    if (measure_call(m) != 0 || measure_synchronize(m) != 0)
        return -1;
    *time_p += (measure_now() - start) / (double)m->order->batch;
    return 0;
}

static int measure_apart(struct measure *m, double *time_p)
{
    *time_p = 0;
    for (long i = 0; i < m->order->batch; i++) {
        if (measure_one(m, time_p) != 0)
            return -1;
    }
    return 0;
}

static int measure_sample(struct measure *m, double *time_p)
{
    double start;

    if (measure_synchronize(m) != 0 || measure_end(m, m->driver->barrier(m->driver)) != 0)
        return -1;
    if (m->order->apart && m->order->operation->layout != LAYOUT_MESSAGES)
        return measure_apart(m, time_p);
    start = measure_now();
    for (long i = 0; i < m->order->batch; i++) {
        if (measure_call(m) != 0)
            return -1;
    }
    if (measure_synchronize(m) != 0)
        return -1;
    *time_p = (measure_now() - start) / (double)m->order->batch;
    return 0;
}

/* On one set; on every one, if their number was asked for. */
static int measure_check(struct measure *m, unsigned seed)
{
    int sets = m->order->buffers ? m->buffers->sets : 1;

    for (int i = 0; m->order->check && i < sets; i++) {
        if (measure_checked(m, seed + (unsigned)i) != 0)
            return -1;
    }
    return 0;
}

/* Everything but the buffers. No set that was asked for is used for the first time in a sample. */
static void measure_all(struct measure *m, double *times)
{
    const struct order *order = m->order;
    long warmup = order->warmup > order->buffers ? order->warmup : order->buffers;

    if (measure_check(m, (unsigned)order->samples) != 0)
        return;
    for (long i = 0; i < warmup; i++) {
        if (measure_call(m) != 0)
            return;
    }
    for (long s = 0; s < order->samples; s++) {
        if (measure_sample(m, &times[s]) != 0)
            return;
    }
    measure_check(m, (unsigned)order->samples + 1);
}

enum outcome measure_run(struct driver *driver, struct buffers *buffers, const struct order *order,
                         double *times, char *reason)
{
    struct measure m = {.driver = driver, .buffers = buffers, .order = order, .reason = reason};
    dist_status status;

    m.outcome = OUTCOME_TOOK;
    if (order->operation->layout == LAYOUT_MESSAGES && driver->ranks < 2) {
        snprintf(reason, MEASURE_REASON, "messages between two ranks need two: give -n 2");
        return OUTCOME_UNSUPPORTED;
    }
    status = buffers_fit(buffers, driver, order);
    if (status == DIST_ERR_NO_MEMORY) {
        snprintf(reason, MEASURE_REASON,
                 "rank %d has no memory for the buffers: give smaller sizes with -m", driver->rank);
        return OUTCOME_FAILED;
    }
    if (status == DIST_OK && driver->prepare)
        status = driver->prepare(driver, order, buffers);
    if (measure_end(&m, status) != 0)
        return m.outcome;
    m.mirror = driver->put ? calloc(1, buffers->stride) : NULL;
    if (driver->put && !m.mirror) {
        snprintf(reason, MEASURE_REASON, "rank %d has no memory to check with", driver->rank);
        return OUTCOME_FAILED;
    }
    measure_all(&m, times);
    free(m.mirror);
    return m.outcome;
}
