/* SPDX-License-Identifier: BSD-3-Clause */
/* The driver of libdist: one function per operation. */
#include "bench/measure.h"
#include "bench/protocol.h"
#include "tools/common/gpu.h"

#include <stdlib.h>
#include <string.h>

enum libdist_memory {
    LIBDIST_MALLOC,
    LIBDIST_REGISTERED,
    LIBDIST_DIST,
    LIBDIST_CUDA,
    LIBDIST_MEMORIES
};
/* Tag 0 is supported by all backends, even those without tags. */
enum { LIBDIST_TAG = 0 };

static const char *const libdist_memories[LIBDIST_MEMORIES] = {"malloc", "registered", "dist",
                                                               "cuda"};

struct libdist {
    struct driver driver; /* must be the first member */
    dist_group *group;
    enum libdist_memory memory;
    const char *error; /* error of this driver itself; NULL: use the library's */
    size_t *counts;    /* equal blocks for the v-forms */
    dist_op premul;    /* DIST_OP_COUNT: none */
    dist_work *works[2 * ORDER_WINDOW_MAX];
};

/* The arguments of a call. */
struct call {
    struct libdist *libdist;
    dist_group *group;
    const struct order *order;
    const void *in;
    void *out;
    size_t count; /* elements of a block */
    dist_dtype dtype;
    dist_op op;
    int root;
};

typedef dist_status (*call_fn)(const struct call *c);

/*
 * Returns equal counts for the v-forms. Element 0 is written last, so it shows whether they are up
 * to date.
 */
static const size_t *call_counts(const struct call *c)
{
    size_t *counts = c->libdist->counts;

    for (int r = c->libdist->driver.ranks; counts[0] != c->count && r-- > 0;)
        counts[r] = c->count;
    return counts;
}

/* ---- collectives ---- */

/* Defines call_NAME, which calls dist_NAME. */
#define CALL(name, ...)                                                                            \
    static dist_status call_##name(const struct call *c)                                           \
    {                                                                                              \
        return dist_##name(c->group, ##__VA_ARGS__);                                               \
    }

CALL(all_reduce, c->in, c->out, c->count, c->dtype, c->op)
CALL(reduce, c->in, c->out, c->count, c->dtype, c->op, c->root)
CALL(broadcast, c->out, c->count, c->dtype, c->root)
CALL(all_gather, c->in, c->out, c->count, c->dtype)
CALL(all_gather_v, c->in, c->out, call_counts(c), NULL, c->dtype)
CALL(reduce_scatter, c->in, c->out, c->count, c->dtype, c->op)
CALL(reduce_scatter_v, c->in, c->out, call_counts(c), c->dtype, c->op)
CALL(gather, c->in, c->out, c->count, c->dtype, c->root)
CALL(gather_v, c->in, c->count, c->out, call_counts(c), NULL, c->dtype, c->root)
CALL(scatter, c->in, c->out, c->count, c->dtype, c->root)
CALL(scatter_v, c->in, call_counts(c), NULL, c->out, c->count, c->dtype, c->root)
CALL(all_to_all, c->in, c->out, c->count, c->dtype)
CALL(barrier)
CALL(monitored_barrier, 0)

static dist_status call_all_reduce_coalesced(const struct call *c)
{
    size_t counts[BENCH_COALESCED];
    void *buffers[BENCH_COALESCED];
    char *next = c->out;

    for (size_t i = 0; i < BENCH_COALESCED; i++) {
        counts[i] = c->count / BENCH_COALESCED + (i < c->count % BENCH_COALESCED);
        buffers[i] = next;
        next += counts[i] * dist_dtype_size(c->dtype);
    }
    return dist_all_reduce_coalesced(c->group, buffers, counts, BENCH_COALESCED, c->dtype, c->op);
}

static dist_status call_all_to_all_v(const struct call *c)
{
    const size_t *counts = call_counts(c);

    return dist_all_to_all_v(c->group, c->in, counts, NULL, c->out, counts, NULL, c->dtype);
}

/* ---- messages ---- */

static dist_status call_latency(const struct call *c)
{
    int rank = c->libdist->driver.rank;
    dist_status status = DIST_OK;

    if (rank == 0)
        status = dist_send(c->group, c->in, c->count, c->dtype, 1, LIBDIST_TAG);
    if (rank <= 1 && status == DIST_OK)
        status = dist_recv(c->group, c->out, c->count, c->dtype, 1 - rank, LIBDIST_TAG, NULL);
    if (rank == 1 && status == DIST_OK)
        status = dist_send(c->group, c->in, c->count, c->dtype, 0, LIBDIST_TAG);
    return status;
}

/* Starts a window of messages, to send, to receive or both, before waiting for any of them. */
static dist_status call_window(const struct call *c, bool send, bool receive)
{
    dist_work **works = c->libdist->works;
    int used = 0, peer = 1 - c->libdist->driver.rank, window = c->order->window;
    dist_status status = DIST_OK;

    for (int i = 0; receive && status == DIST_OK && i < window; i++) {
        status =
            dist_irecv(c->group, c->out, c->count, c->dtype, peer, LIBDIST_TAG, NULL, &works[used]);
        used += status == DIST_OK;
    }
    for (int i = 0; send && status == DIST_OK && i < window; i++) {
        status = dist_isend(c->group, c->in, c->count, c->dtype, peer, LIBDIST_TAG, &works[used]);
        used += status == DIST_OK;
    }
    for (int i = 0; i < used; i++) {
        dist_status ended = dist_wait(works[i]);

        status = status == DIST_OK ? ended : status; /* return the first failure */
    }
    return status;
}

static dist_status call_bw(const struct call *c)
{
    int rank = c->libdist->driver.rank;
    unsigned char back = 0;
    dist_status status;

    if (rank > 1)
        return DIST_OK;
    status = call_window(c, rank == 0, rank == 1);
    if (status != DIST_OK)
        return status;
    if (rank == 0)
        return dist_recv(c->group, &back, 1, DIST_UINT8, 1, LIBDIST_TAG, NULL);
    return dist_send(c->group, &back, 1, DIST_UINT8, 0, LIBDIST_TAG);
}

static dist_status call_bibw(const struct call *c)
{
    return c->libdist->driver.rank > 1 ? DIST_OK : call_window(c, true, true);
}

static const call_fn call_functions[OPERATION_COUNT] = {
#define CALL_FUNCTION(name, ...) call_##name,
    OPERATION_MAP(CALL_FUNCTION)
#undef CALL_FUNCTION
};

/* ---- the driver ---- */

static dist_status libdist_call(struct driver *driver, const struct order *order, const void *in,
                                void *out)
{
    struct libdist *libdist = (struct libdist *)driver;
    struct call call = {.libdist = libdist,
                        .group = libdist->group,
                        .order = order,
                        .in = in,
                        .out = out,
                        .count = order_count(order, driver->ranks),
                        .dtype = order->dtype,
                        .op = order->op == DIST_PREMUL_SUM ? libdist->premul : order->op,
                        .root = order->root};

    libdist->error = NULL;
    return call_functions[order->operation->id](&call);
}

static dist_status libdist_barrier(struct driver *driver)
{
    return dist_barrier(((struct libdist *)driver)->group);
}

static const char *libdist_error(struct driver *driver)
{
    return ((struct libdist *)driver)->error ? ((struct libdist *)driver)->error
                                             : dist_last_error();
}

static dist_status libdist_wrong(struct libdist *libdist, bool good, const char *error)
{
    libdist->error = good ? NULL : error;
    return good ? DIST_OK : DIST_ERR_SYSTEM;
}

/* True if the buffers are GPU memory; with backend nccl, dist_alloc returns GPU memory. */
static bool libdist_is_gpu(const struct libdist *libdist)
{
    return libdist->memory == LIBDIST_CUDA ||
           (libdist->memory == LIBDIST_DIST &&
            strcmp(dist_get_backend(libdist->group), "nccl") == 0);
}

static dist_status libdist_put(struct driver *driver, void *to, const void *from, size_t bytes)
{
    return libdist_wrong((struct libdist *)driver, gpu_put(to, from, bytes),
                         "a copy to the GPU failed");
}

static dist_status libdist_get(struct driver *driver, void *to, const void *from, size_t bytes)
{
    return libdist_wrong((struct libdist *)driver, gpu_get(to, from, bytes),
                         "a copy from the GPU failed");
}

static dist_status libdist_synchronize(struct driver *driver)
{
    return libdist_wrong((struct libdist *)driver, gpu_synchronize(), "the GPU's stream failed");
}

static dist_status libdist_alloc(struct driver *driver, size_t bytes, void **memory_p)
{
    struct libdist *libdist = (struct libdist *)driver;

    libdist->error = NULL;
    if (libdist_is_gpu(libdist)) {
        dist_status status;

        libdist->error = gpu_open(dist_get_local_rank(libdist->group));
        if (libdist->error)
            return DIST_ERR_SYSTEM;
        status = dist_set_stream(libdist->group, gpu_stream());
        if (status != DIST_OK || libdist->memory == LIBDIST_DIST)
            return status == DIST_OK ? dist_alloc(libdist->group, bytes, memory_p) : status;
        *memory_p = gpu_alloc(bytes);
        return libdist_wrong(libdist, *memory_p, "out of GPU memory: use smaller sizes with -m");
    }
    if (libdist->memory == LIBDIST_REGISTERED) {
        /* Use malloc, like a program that does not call dist_alloc. */
        void *memory = malloc(bytes);
        dist_status status =
            libdist_wrong(libdist, memory, "out of memory: use smaller sizes with -m");

        if (status == DIST_OK)
            status = dist_register(libdist->group, memory, bytes);
        if (status == DIST_OK)
            *memory_p = memory;
        else
            free(memory);
        return status;
    }
    return dist_alloc(libdist->group, bytes, memory_p);
}

static void libdist_free_memory(struct driver *driver, void *memory, size_t bytes)
{
    struct libdist *libdist = (struct libdist *)driver;

    (void)bytes;
    if (libdist->memory == LIBDIST_CUDA)
        gpu_free(memory);
    else if (libdist->memory == LIBDIST_DIST)
        dist_free(libdist->group, memory);
    else if (dist_unregister(libdist->group, memory) == DIST_OK)
        free(memory);
}

static int libdist_memory_find(const char *name)
{
    for (int i = 0; i < LIBDIST_MEMORIES; i++) {
        if (strcmp(libdist_memories[i], name) == 0)
            return i;
    }
    return -1;
}

bool libdist_has_memory(const char *name)
{
    return libdist_memory_find(name) >= 0;
}

dist_status libdist_new(dist_group *group, const char *memory, struct driver **driver_p)
{
    struct libdist *libdist = calloc(1, sizeof(*libdist));
    dist_status status = DIST_ERR_NO_MEMORY;

    if (!libdist)
        return status;
    libdist->group = group;
    libdist->memory = (enum libdist_memory)libdist_memory_find(memory);
    libdist->driver = (struct driver){.rank = dist_get_rank(group),
                                      .ranks = dist_get_world_size(group),
                                      .barrier = libdist_barrier,
                                      .call = libdist_call,
                                      .error = libdist_error};
    if (libdist->memory != LIBDIST_MALLOC) {
        libdist->driver.alloc = libdist_alloc;
        libdist->driver.free = libdist_free_memory;
    }
    if (libdist_is_gpu(libdist)) {
        libdist->driver.put = libdist_put;
        libdist->driver.get = libdist_get;
        libdist->driver.synchronize = libdist_synchronize;
    }
    libdist->premul = DIST_OP_COUNT;
    libdist->counts = calloc((size_t)libdist->driver.ranks, sizeof(size_t));
    if (libdist->counts)
        status = dist_op_create_premul_sum(PATTERN_FACTOR, &libdist->premul);
    if (status != DIST_OK) {
        libdist_free(&libdist->driver);
        return status;
    }
    *driver_p = &libdist->driver;
    return DIST_OK;
}

void libdist_free(struct driver *driver)
{
    struct libdist *libdist = (struct libdist *)driver;

    if (!libdist)
        return;
    if (libdist->premul != DIST_OP_COUNT)
        dist_op_free(libdist->premul);
    free(libdist->counts);
    free(libdist);
}
