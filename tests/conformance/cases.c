/* SPDX-License-Identifier: BSD-3-Clause */
/* The battery's cases, one collective after the other. */
#include "battery.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GUARD_BYTES 64
#define GUARD 0xa5

void battery_fault(struct battery *b, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (b->faults++ < 5)
        fprintf(stderr, "rank %d: FAULT %s\n", b->rank, text);
}

/* Memory of some elements with guards around it, at an odd multiple of the element's size. */
struct buffer {
    unsigned char *memory, *data;
    size_t bytes;
};

static struct buffer buffer_new(size_t count, dist_dtype dtype)
{
    struct buffer buffer = {.bytes = count * dist_dtype_size(dtype)};

    buffer.memory = malloc(buffer.bytes + 3 * GUARD_BYTES);
    if (!buffer.memory) {
        fprintf(stderr, "no memory for %zu bytes\n", buffer.bytes);
        exit(1);
    }
    memset(buffer.memory, GUARD, buffer.bytes + 3 * GUARD_BYTES);
    buffer.data = buffer.memory + GUARD_BYTES + dist_dtype_size(dtype);
    return buffer;
}

static void buffer_free(struct battery *b, struct buffer *buffer, const char *what)
{
    unsigned char *end = buffer->data + buffer->bytes;
    bool whole = true;

    for (unsigned char *at = buffer->memory; at < buffer->data; at++)
        whole = whole && *at == GUARD;
    for (unsigned char *at = end; at < end + GUARD_BYTES; at++)
        whole = whole && *at == GUARD;
    b->checks++;
    if (!whole)
        battery_fault(b, "%s wrote outside its buffer", what);
    free(buffer->memory);
}

static bool status_ok(struct battery *b, dist_status status, const char *what)
{
    b->checks++;
    if (status == DIST_OK)
        return true;
    battery_fault(b, "%s: %s: %s", what, dist_status_string(status), dist_last_error());
    return false;
}

/* Every element where there are few; else the edges and a sample. */
static size_t next_index(size_t i, size_t count)
{
    if (count <= 4096 || i < 64 || i + 64 >= count)
        return i + 1;
    return i + 1 + (i * 2654435761u) % 97;
}

static void check_reduced(struct battery *b, const void *data, size_t count, dist_dtype dtype,
                          dist_op op, const char *what)
{
    double expected, found;

    b->checks++;
    for (size_t i = 0; i < count; i = next_index(i, count)) {
        if (data_reduced(data, b->seed, b->ranks, i, dtype, op, &expected, &found))
            continue;
        battery_fault(b, "%s %s %s, count %zu: element %zu is %.9g, should be %.9g", what,
                      dist_dtype_string(dtype), dist_op_string(op), count, i, found, expected);
        return;
    }
}

static uint64_t hash_bytes(const unsigned char *data, size_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ data[i]) * 0x100000001b3u;
    return hash;
}

/* The ranks must agree to the last bit. */
static void check_agreement(struct battery *b, const void *data, size_t bytes, const char *what)
{
    uint64_t mine = hash_bytes(data, bytes), *all = calloc((size_t)b->ranks, sizeof(*all));

    if (all && status_ok(b, dist_all_gather(b->group, &mine, all, 1, DIST_UINT64), "agreement")) {
        for (int r = 0; r < b->ranks; r++) {
            if (all[r] != mine)
                battery_fault(b, "%s: ranks %d and %d have different bits", what, b->rank, r);
        }
    }
    free(all);
}

static void all_reduce_in_place(struct battery *b, size_t count, dist_dtype dtype, dist_op op)
{
    struct buffer buffer = buffer_new(count, dtype);

    data_fill(buffer.data, b->seed, b->rank, count, dtype, op);
    if (status_ok(b, dist_all_reduce(b->group, buffer.data, buffer.data, count, dtype, op),
                  "all_reduce"))
        check_reduced(b, buffer.data, count, dtype, op, "all_reduce in place");
    check_agreement(b, buffer.data, buffer.bytes, "all_reduce in place");
    buffer_free(b, &buffer, "all_reduce in place");
}

static void all_reduce_apart(struct battery *b, size_t count, dist_dtype dtype, dist_op op)
{
    struct buffer in = buffer_new(count, dtype), out = buffer_new(count, dtype);

    data_fill(in.data, b->seed, b->rank, count, dtype, op);
    if (status_ok(b, dist_all_reduce(b->group, in.data, out.data, count, dtype, op), "all_reduce"))
        check_reduced(b, out.data, count, dtype, op, "all_reduce");
    for (size_t i = 0; i < count; i = next_index(i, count)) {
        if (!data_same(in.data, b->seed, b->rank, i, i, dtype, op)) {
            battery_fault(b, "all_reduce changed its input at element %zu", i);
            break;
        }
    }
    buffer_free(b, &in, "all_reduce (in)");
    buffer_free(b, &out, "all_reduce (out)");
}

void cases_all_reduce(struct battery *b, size_t count, dist_dtype dtype, dist_op op)
{
    b->seed++;
    all_reduce_in_place(b, count, dtype, op);
    b->seed++;
    all_reduce_apart(b, count, dtype, op);
}

void cases_broadcast(struct battery *b, size_t count, dist_dtype dtype)
{
    for (int root = 0; root < b->ranks; root++) {
        struct buffer buffer = buffer_new(count, dtype);

        b->seed++;
        data_fill(buffer.data, b->seed, b->rank, count, dtype, DIST_SUM);
        if (status_ok(b, dist_broadcast(b->group, buffer.data, count, dtype, root), "broadcast")) {
            for (size_t i = 0; i < count; i = next_index(i, count)) {
                if (!data_same(buffer.data, b->seed, root, i, i, dtype, DIST_SUM)) {
                    battery_fault(b, "broadcast %s from %d, count %zu: element %zu is wrong",
                                  dist_dtype_string(dtype), root, count, i);
                    break;
                }
            }
        }
        buffer_free(b, &buffer, "broadcast");
    }
}

static void check_gathered(struct battery *b, const void *data, size_t count, dist_dtype dtype)
{
    for (int r = 0; r < b->ranks; r++) {
        for (size_t i = 0; i < count; i = next_index(i, count)) {
            if (data_same(data, b->seed, r, i, (size_t)r * count + i, dtype, DIST_SUM))
                continue;
            battery_fault(b, "all_gather %s, count %zu: element %zu of rank %d is wrong",
                          dist_dtype_string(dtype), count, i, r);
            return;
        }
    }
}

void cases_all_gather(struct battery *b, size_t count, dist_dtype dtype)
{
    size_t own = (size_t)b->rank * count * dist_dtype_size(dtype);
    struct buffer in = buffer_new(count, dtype);
    struct buffer out = buffer_new(count * (size_t)b->ranks, dtype);

    b->seed++;
    data_fill(in.data, b->seed, b->rank, count, dtype, DIST_SUM);
    if (status_ok(b, dist_all_gather(b->group, in.data, out.data, count, dtype), "all_gather"))
        check_gathered(b, out.data, count, dtype);
    b->seed++;
    data_fill(out.data + own, b->seed, b->rank, count, dtype, DIST_SUM);
    if (status_ok(b, dist_all_gather(b->group, out.data + own, out.data, count, dtype),
                  "all_gather in place"))
        check_gathered(b, out.data, count, dtype);
    buffer_free(b, &in, "all_gather (in)");
    buffer_free(b, &out, "all_gather (out)");
}

/*
 * Nobody leaves a barrier before everybody has come: each rank in turn comes last, and
 * tells by a file-less clue: the others' clocks before and after, gathered.
 */
void cases_barrier(struct battery *b)
{
    for (int late = 0; late < b->ranks; late++) {
        struct timespec nap = {0, 2 * 1000 * 1000};
        double times[2], *all = calloc(2 * (size_t)b->ranks, sizeof(*all));
        struct timespec now;

        if (!all)
            return;
        if (b->rank == late)
            nanosleep(&nap, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
        times[0] = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
        status_ok(b, dist_barrier(b->group), "barrier");
        clock_gettime(CLOCK_MONOTONIC, &now);
        times[1] = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
        status_ok(b, dist_all_gather(b->group, times, all, 2, DIST_FLOAT64), "barrier's times");
        for (int r = 0; r < b->ranks; r++) { /* one machine, one clock */
            if (all[2 * r] > times[1])
                battery_fault(b, "left a barrier before rank %d had come", r);
        }
        free(all);
    }
}

#define ASYNC_WORKS 12

/* Works of different sizes and kinds in flight, waited for in another order, some polled. */
void cases_async(struct battery *b)
{
    struct buffer buffers[ASYNC_WORKS];
    dist_work *works[ASYNC_WORKS];
    uint64_t seeds[ASYNC_WORKS];

    for (int w = 0; w < ASYNC_WORKS; w++) {
        size_t count = (size_t)(w % 5) * 3001 + (size_t)w;

        seeds[w] = ++b->seed;
        buffers[w] = buffer_new(count, DIST_INT32);
        data_fill(buffers[w].data, seeds[w], b->rank, count, DIST_INT32, DIST_SUM);
        works[w] = NULL;
        status_ok(b,
                  w % 3 == 2 ? dist_broadcast_async(b->group, buffers[w].data, count, DIST_INT32,
                                                    w % b->ranks, &works[w])
                             : dist_all_reduce_async(b->group, buffers[w].data, buffers[w].data,
                                                     count, DIST_INT32, DIST_SUM, &works[w]),
                  "async start");
    }
    for (int k = 0; k < ASYNC_WORKS; k++) {
        int w = (k * 5 + 3) % ASYNC_WORKS;
        size_t count = buffers[w].bytes / 4;
        bool done = false;

        while (works[w] && k % 2 && !done && status_ok(b, dist_test(works[w], &done), "test"))
            ;
        if (works[w])
            status_ok(b, dist_wait(works[w]), "wait");
        b->seed = seeds[w];
        if (w % 3 != 2)
            check_reduced(b, buffers[w].data, count, DIST_INT32, DIST_SUM, "async all_reduce");
        for (size_t i = 0; w % 3 == 2 && i < count; i++) {
            if (!data_same(buffers[w].data, seeds[w], w % b->ranks, i, i, DIST_INT32, DIST_SUM)) {
                battery_fault(b, "async broadcast: element %zu is wrong", i);
                break;
            }
        }
        buffer_free(b, &buffers[w], "async work");
    }
    b->seed = seeds[ASYNC_WORKS - 1];
}

static void refused(struct battery *b, dist_status status, const char *what)
{
    b->checks++;
    if (status != DIST_ERR_INVALID_ARGUMENT)
        battery_fault(b, "%s was not refused: %s", what, dist_status_string(status));
    else if (!*dist_last_error())
        battery_fault(b, "%s was refused without a word", what);
}

/* A refused call must leave the group as it was. */
void cases_arguments(struct battery *b)
{
    float data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    dist_group *g = b->group;

    refused(b, dist_all_reduce(g, NULL, data, 4, DIST_FLOAT32, DIST_SUM), "in NULL");
    refused(b, dist_all_reduce(g, data, NULL, 4, DIST_FLOAT32, DIST_SUM), "out NULL");
    refused(b, dist_all_reduce(g, data, data + 1, 4, DIST_FLOAT32, DIST_SUM), "overlap");
    refused(b, dist_all_reduce(g, data, data, 4, (dist_dtype)99, DIST_SUM), "dtype 99");
    refused(b, dist_all_reduce(g, data, data, 4, DIST_FLOAT32, (dist_op)99), "op 99");
    refused(b, dist_all_reduce(g, data, data, SIZE_MAX / 2, DIST_FLOAT32, DIST_SUM), "count");
    refused(b, dist_broadcast(g, data, 4, DIST_FLOAT32, b->ranks), "root too large");
    refused(b, dist_broadcast(g, data, 4, DIST_FLOAT32, -1), "root negative");
    refused(b, dist_all_reduce(NULL, data, data, 4, DIST_FLOAT32, DIST_SUM), "group NULL");
    refused(b, dist_all_reduce_async(g, data, data, 4, DIST_FLOAT32, DIST_SUM, NULL), "work NULL");
    status_ok(b, dist_all_reduce(g, NULL, NULL, 0, DIST_FLOAT32, DIST_SUM), "zero count, NULL");
    status_ok(b, dist_all_reduce(g, data, data, 8, DIST_FLOAT32, DIST_MAX), "after refusals");
}

/* A NaN on one rank reaches all; infinities add up. */
void cases_special_values(struct battery *b)
{
    for (int op = 0; op <= DIST_MAX; op++) {
        float data[3] = {1, 2, b->rank == 0 ? INFINITY : 1};

        if (b->rank == b->ranks - 1)
            data[1] = NAN;
        status_ok(b, dist_all_reduce(b->group, data, data, 3, DIST_FLOAT32, (dist_op)op), "nan");
        b->checks++;
        if (!isnan(data[1]))
            battery_fault(b, "%s lost a NaN", dist_op_string((dist_op)op));
        if (op != DIST_MIN && !isinf(data[2]))
            battery_fault(b, "%s lost an infinity", dist_op_string((dist_op)op));
        check_agreement(b, data, sizeof(data), "special values");
    }
}
