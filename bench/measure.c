/* SPDX-License-Identifier: BSD-3-Clause */
/* Orders, buffers, the measurement on one rank, and the worker's side of the protocol. */
#include "bench/measure.h"
#include "bench/protocol.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

const char *const outcome_words[OUTCOME_COUNT] = {"took", "unsupported", "wrong", "failed"};

void order_write(const struct order *order, char *line)
{
    int length = snprintf(line, ORDER_LINE, "run %s %zu %s %s %d %d %ld %ld %ld %d",
                          order->operation->name, order->bytes, dist_dtype_string(order->dtype),
                          dist_op_string(order->op), order->root, order->in_place, order->warmup,
                          order->samples, order->batch, order->check);

    /* Drivers of other libraries receive optional fields only if they are used. */
    if (order->window != BENCH_WINDOW || order->buffers || order->apart)
        length += snprintf(line + length, ORDER_LINE - (size_t)length, " %d", order->window);
    if (order->buffers || order->apart)
        length += snprintf(line + length, ORDER_LINE - (size_t)length, " %d", order->buffers);
    if (order->apart)
        length += snprintf(line + length, ORDER_LINE - (size_t)length, " 1");
    snprintf(line + length, ORDER_LINE - (size_t)length, "\n");
}

int order_read(const char *line, int ranks, struct order *order_p)
{
    char name[64], dtype[32], op[32];
    int in_place, check, type, reduction, fields, apart = 0;
    struct order order = {.window = BENCH_WINDOW};

    fields = sscanf(line, "run %63s %zu %31s %31s %d %d %ld %ld %ld %d %d %d %d", name,
                    &order.bytes, dtype, op, &order.root, &in_place, &order.warmup, &order.samples,
                    &order.batch, &check, &order.window, &order.buffers, &apart);
    if (fields < 10)
        return -1;
    order.operation = operation_find(name);
    type = operation_dtype(dtype);
    reduction = operation_op(op);
    if (type < 0 || reduction < 0)
        return -1;
    order.dtype = (dist_dtype)type;
    order.op = (dist_op)reduction;
    order.in_place = in_place != 0;
    order.check = check != 0;
    order.apart = apart != 0;
    size_t element = dist_dtype_size(order.dtype);
    if (!(order.operation &&
          order.bytes % (element * (size_t)operation_blocks(order.operation, ranks)) == 0 &&
          order.root >= 0 && order.root < ranks && order.warmup >= 0 && order.samples >= 1 &&
          order.samples <= ORDER_SAMPLES_MAX && order.batch >= 1 && order.window >= 1 &&
          order.window <= ORDER_WINDOW_MAX && order.buffers >= 0 &&
          order.buffers <= ORDER_BUFFERS_MAX))
        return -1;
    *order_p = order;
    return 0;
}

size_t order_block(const struct order *order, int ranks)
{
    return order->bytes / (size_t)operation_blocks(order->operation, ranks);
}

size_t order_count(const struct order *order, int ranks)
{
    return order_block(order, ranks) / dist_dtype_size(order->dtype);
}

/* The buffers of a run. */

/*
 * Rounds up a length: long buffers are page-aligned, as malloc's are, and short ones are aligned to
 * cache lines.
 */
static size_t buffers_round(size_t bytes)
{
    size_t step = bytes >= 4096 ? 4096 : 64;

    return (bytes + step - 1) / step * step;
}

static size_t buffers_part(enum operation_part part, const struct order *order, int ranks)
{
    return part == PART_WHOLE ? order->bytes : part == PART_BLOCK ? order_block(order, ranks) : 0;
}

bool buffers_in_place(const struct order *order)
{
    return order->operation->in_place == IN_PLACE_ALWAYS ||
           (order->in_place && order->operation->in_place == IN_PLACE_OPTIONAL);
}

/*
 * Computes the layout of a set:
 *
 *   out of place    | in | out |       each rounded up by buffers_round
 *   in place        | buffer   |       in or out is the whole buffer, the other one the same, or
 *                                      this rank's block of it
 */
static void buffers_lay(struct buffers *b, const struct order *order, int rank, int ranks)
{
    const struct operation *operation = order->operation;
    size_t block = (size_t)rank * order_block(order, ranks), sets;

    b->in_bytes = buffers_part(operation->in, order, ranks);
    b->out_bytes = buffers_part(operation->out, order, ranks);
    b->in_offset = b->out_offset = 0;
    if (!buffers_in_place(order)) {
        b->out_offset = buffers_round(b->in_bytes);
        b->stride = b->out_offset + buffers_round(b->out_bytes);
    } else {
        b->stride = buffers_round(order->bytes);
        if (operation->in == PART_BLOCK)
            b->in_offset = block;
        if (operation->out == PART_BLOCK)
            b->out_offset = block;
    }
    if (b->stride == 0)
        b->stride = 64;
    sets = BENCH_SETS_BYTES / b->stride;
    sets = sets > BENCH_SETS_MAX ? BENCH_SETS_MAX : sets < BENCH_SETS_MIN ? BENCH_SETS_MIN : sets;
    b->sets = order->buffers ? order->buffers : (int)sets;
}

int buffers_sets(const struct order *order, int ranks)
{
    struct buffers b;

    buffers_lay(&b, order, 0, ranks);
    return b.sets;
}

size_t buffers_need(const struct order *order, int ranks)
{
    struct buffers b;

    if (order->bytes > SIZE_MAX / (4 * ((size_t)order->buffers + BENCH_SETS_MIN)))
        return SIZE_MAX;
    buffers_lay(&b, order, 0, ranks);
    return b.stride * (size_t)b.sets;
}

/* Zeroes all sets. If only the device can access the memory, one set at a time. */
static dist_status buffers_touch(const struct buffers *b, struct driver *driver)
{
    dist_status status = DIST_OK;
    char *zeroes = driver->put ? calloc(1, b->stride) : NULL;

    if (driver->put && !zeroes)
        return DIST_ERR_NO_MEMORY;
    for (int set = 0; set < b->sets && status == DIST_OK; set++) {
        if (driver->put)
            status = driver->put(driver, buffers_set(b, set), zeroes, b->stride);
        else
            memset(buffers_set(b, set), 0, b->stride);
    }
    free(zeroes);
    return status;
}

/*
 * Allocates and touches buffers for the order, or keeps the previous buffers if they fit. All ranks
 * must call it.
 */
static dist_status buffers_fit(struct buffers *buffers, struct driver *driver,
                               const struct order *order)
{
    struct buffers fresh = {0};
    dist_status status = DIST_OK;

    buffers_lay(&fresh, order, driver->rank, driver->ranks);
    if (driver->block_in_front && order->operation->reduces && buffers_in_place(order))
        fresh.out_offset = 0;
    fresh.piece_count = order->buffers && !driver->one_piece ? fresh.sets : 1;
    fresh.bytes = fresh.stride * (size_t)(fresh.sets / fresh.piece_count);
    if (buffers->pieces && buffers->bytes == fresh.bytes &&
        buffers->piece_count == fresh.piece_count) {
        fresh.pieces = buffers->pieces;
        *buffers = fresh;
        return DIST_OK;
    }
    buffers_free(buffers, driver);
    fresh.pieces = calloc((size_t)fresh.piece_count, sizeof(*fresh.pieces));
    if (!fresh.pieces)
        return DIST_ERR_NO_MEMORY;
    *buffers = fresh;
    for (int i = 0; i < buffers->piece_count && status == DIST_OK; i++) {
        if (driver->alloc)
            status = driver->alloc(driver, buffers->bytes, &buffers->pieces[i]);
        else if (posix_memalign(&buffers->pieces[i], 4096, buffers->bytes) != 0)
            status = DIST_ERR_NO_MEMORY;
    }
    return status == DIST_OK ? buffers_touch(buffers, driver) : status;
}

void buffers_free(struct buffers *buffers, struct driver *driver)
{
    if (buffers->pieces && driver->forget)
        driver->forget(driver);
    for (int i = 0; i < buffers->piece_count; i++) {
        if (buffers->pieces[i] && driver->free)
            driver->free(driver, buffers->pieces[i], buffers->bytes);
        else
            free(buffers->pieces[i]);
    }
    free(buffers->pieces);
    *buffers = (struct buffers){0};
}

/* Runs an order on one rank: buffers, a checked call, warm-up, samples, a checked call. */

/* Fill byte of out before a checked call; no correct result looks like it. */
#define MEASURE_POISON 0xa5

struct measure {
    struct driver *driver;
    struct buffers *buffers;
    const struct order *order;
    int next;     /* index of the next set */
    char *mirror; /* host copy of one set if the host cannot access the buffers; otherwise NULL */
    enum outcome outcome;
    char *reason;
};

double measure_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* ---- host view of a set: the memory itself, or the mirror ---- */

static void *measure_in(const struct measure *m, int set)
{
    return m->mirror ? m->mirror + m->buffers->in_offset : buffers_in(m->buffers, set);
}

static void *measure_out(const struct measure *m, int set)
{
    return m->mirror ? m->mirror + m->buffers->out_offset : buffers_out(m->buffers, set);
}

static dist_status measure_upload(const struct measure *m, int set)
{
    return m->mirror ? m->driver->put(m->driver, buffers_set(m->buffers, set), m->mirror,
                                      m->buffers->stride)
                     : DIST_OK;
}

/* ---- expected results ---- */

static bool measure_is_correct(const struct measure *m, const struct pattern *pattern, int set,
                               size_t *bad_p)
{
    const struct order *order = m->order;
    const struct operation *operation = order->operation;
    int rank = m->driver->rank;
    const void *out = measure_out(m, set);
    size_t count = m->buffers->out_bytes / dist_dtype_size(order->dtype);
    size_t mine = (size_t)rank * order_count(order, m->driver->ranks);

    /* Messages: rank 1 receives from 0; except in bw, rank 0 receives from 1. */
    if (operation->layout == LAYOUT_MESSAGES)
        return rank > 1 || (rank == 0 && operation->id == OPERATION_bw) ||
               pattern_is(pattern, 1 - rank, 0, out, count, bad_p);
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
    /* Blocks of all ranks, one after the other; block s contains data of rank s. */
    size_t each = order_count(m->order, m->driver->ranks);
    size_t block = order_block(m->order, m->driver->ranks);

    for (int s = 0; s < m->driver->ranks; s++) {
        if (!pattern_is(pattern, s, operation->in == PART_WHOLE ? mine : 0, out + (size_t)s * block,
                        each, bad_p)) {
            *bad_p += (size_t)s * each;
            return false;
        }
    }
    return true;
}

/* ---- calls and samples ---- */

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

/* Runs a checked call on the next set. -1: the run has ended. */
static int measure_checked(struct measure *m, unsigned seed)
{
    struct pattern pattern = {.dtype = m->order->dtype,
                              .op = m->order->op,
                              .reduces = m->order->operation->reduces,
                              .ranks = m->driver->ranks,
                              .seed = seed};
    size_t bad = 0;
    int set = m->next;

    if (m->order->operation->layout == LAYOUT_NOTHING)
        return measure_call(m);
    /* Fill the input and poison the output of this rank. */
    const struct order *order = m->order;
    struct buffers *b = m->buffers;
    int rank = m->driver->rank;
    bool sends = true;
    size_t size = dist_dtype_size(order->dtype);
    void *in = measure_in(m, set), *out = measure_out(m, set);
    size_t bytes = order->operation->in == PART_NONE ? b->out_bytes : b->in_bytes;

    memset(out, MEASURE_POISON, b->out_bytes);
    if (order->operation->id == OPERATION_broadcast || order->operation->in == PART_WHOLE)
        sends = !order->operation->rooted || order->operation->reduces || rank == order->root;
    if (sends)
        pattern_fill(&pattern, rank, 0, order->operation->in == PART_NONE ? out : in, bytes / size);
    /*
     * The barrier is needed because another rank may write to this rank's buffers as soon as it has
     * entered the call.
     */
    if (measure_end(m, measure_upload(m, set)) != 0 ||
        measure_end(m, m->driver->barrier(m->driver)) != 0 || measure_call(m) != 0 ||
        measure_end(m, m->mirror ? m->driver->get(m->driver, m->mirror,
                                                  buffers_set(m->buffers, set), m->buffers->stride)
                                 : DIST_OK) != 0)
        return -1;
    if (m->outcome == OUTCOME_TOOK && !measure_is_correct(m, &pattern, set, &bad)) {
        m->outcome = OUTCOME_WRONG;
        snprintf(m->reason, MEASURE_REASON, "rank %d: element %zu of the result is wrong",
                 m->driver->rank, bad);
    }
    /* Zero the buffers: in place, repeated sums would overflow, whereas zeros stay zero. */
    memset(measure_out(m, set), 0, m->buffers->out_bytes);
    memset(measure_in(m, set), 0, m->buffers->in_bytes);
    return measure_end(m, measure_upload(m, set));
}

/* Waits for calls that are queued on a stream. */
static int measure_synchronize(struct measure *m)
{
    return m->driver->synchronize ? measure_end(m, m->driver->synchronize(m->driver)) : 0;
}

static int measure_sample(struct measure *m, double *time_p)
{
    double start;

    if (measure_synchronize(m) != 0 || measure_end(m, m->driver->barrier(m->driver)) != 0)
        return -1;
    if (m->order->apart && m->order->operation->layout != LAYOUT_MESSAGES) {
        *time_p = 0;
        for (long i = 0; i < m->order->batch; i++) {
            /* All ranks begin the call together. */
            if (m->order->operation->layout != LAYOUT_NOTHING &&
                measure_end(m, m->driver->barrier(m->driver)) != 0)
                return -1;
            start = measure_now();
            if (measure_call(m) != 0 || measure_synchronize(m) != 0)
                return -1;
            *time_p += (measure_now() - start) / (double)m->order->batch;
        }
        return 0;
    }
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

/* Checks one set, or every set if --buffers was given. */
static int measure_check(struct measure *m, unsigned seed)
{
    int sets = m->order->buffers ? m->buffers->sets : 1;

    for (int i = 0; m->order->check && i < sets; i++) {
        if (measure_checked(m, seed + (unsigned)i) != 0)
            return -1;
    }
    return 0;
}

/* Runs checks, warm-up and samples. The warm-up uses every set of --buffers at least once. */
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
        snprintf(reason, MEASURE_REASON, "messages require at least two ranks: use -n 2");
        return OUTCOME_UNSUPPORTED;
    }
    status = buffers_fit(buffers, driver, order);
    if (status == DIST_ERR_NO_MEMORY) {
        snprintf(reason, MEASURE_REASON,
                 "rank %d is out of memory for the buffers: use smaller sizes with -m",
                 driver->rank);
        return OUTCOME_FAILED;
    }
    if (status == DIST_OK && driver->prepare)
        status = driver->prepare(driver, order, buffers);
    if (measure_end(&m, status) != 0)
        return m.outcome;
    m.mirror = driver->put ? calloc(1, buffers->stride) : NULL;
    if (driver->put && !m.mirror) {
        snprintf(reason, MEASURE_REASON, "rank %d is out of memory for the check", driver->rank);
        return OUTCOME_FAILED;
    }
    measure_all(&m, times);
    free(m.mirror);
    return m.outcome;
}

/* The worker's side of the protocol: connects, sends hello, answers each order. */

struct server {
    struct driver *driver;
    struct buffers buffers;
    FILE *in, *out;
};

static int serve_fail(const char *name, const char *what, const char *why)
{
    fprintf(stderr, "%s: %s: %s\n", name, what, why);
    return -1;
}

static int serve_connect(struct server *server, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv(BENCH_SOCKET);
    int fd;

    if (!path || strlen(path) >= sizeof(address.sun_path))
        return serve_fail(name, BENCH_SOCKET " is not the path of a socket",
                          "dist_bench --compare sets it and starts this program");
    strcpy(address.sun_path, path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        serve_fail(name, "cannot connect to dist_bench", strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    server->in = fdopen(fd, "r");
    server->out = server->in ? fdopen(dup(fd), "w") : NULL;
    return server->out
               ? 0
               : serve_fail(name, "cannot open the connection to dist_bench", strerror(errno));
}

/*
 * Runs the order of a line and sends the answer. Returns -1 if the line is not an order, or if the
 * driver cannot be used any more.
 */
static int serve_order(struct server *server, const char *line)
{
    char reason[MEASURE_REASON] = "out of memory for the times: use fewer iterations with -i";
    enum outcome outcome = OUTCOME_FAILED;
    struct order order;
    double *times;

    if (order_read(line, server->driver->ranks, &order) != 0)
        return -1;
    times = calloc((size_t)order.samples, sizeof(double));
    if (times)
        outcome = measure_run(server->driver, &server->buffers, &order, times, reason);
    if (outcome != OUTCOME_TOOK) {
        /* A line break would end the answer. */
        for (char *at = reason; (at = strpbrk(at, "\r\n"));)
            *at = ' ';
        fprintf(server->out, "%s %s\n", outcome_words[outcome], reason);
    }
    for (long s = 0; outcome == OUTCOME_TOOK && s < order.samples; s++)
        fprintf(server->out, "%s%.3f%s", s ? " " : "took ", times[s],
                s + 1 == order.samples ? "\n" : "");
    free(times);
    return fflush(server->out) == 0 && outcome != OUTCOME_FAILED ? 0 : -1;
}

int serve(struct driver *driver, const char *name, const char *release)
{
    struct server server = {.driver = driver};
    char line[ORDER_LINE];
    int status = serve_connect(&server, name);

    if (status == 0) {
        fprintf(server.out, "hello %s %d %d %s\n", name, driver->rank, driver->ranks, release);
        fflush(server.out);
        while (fgets(line, sizeof(line), server.in) && serve_order(&server, line) == 0)
            ;
        buffers_free(&server.buffers, driver);
    }
    if (server.in)
        fclose(server.in);
    if (server.out)
        fclose(server.out);
    return status;
}
