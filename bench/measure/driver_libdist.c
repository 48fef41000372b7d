/* SPDX-License-Identifier: BSD-3-Clause */
/* libdist as a driver: one function an operation. */
#include "bench/protocol.h"
#include "driver.h"
#include "pattern.h"
#include "tools/common/gpu.h"

#include <stdlib.h>
#include <string.h>

enum libdist_memory { LIBDIST_MALLOC, LIBDIST_DIST, LIBDIST_CUDA, LIBDIST_MEMORIES };
/* Backends that know no others know this one. */
enum { LIBDIST_TAG = 0 };

static const char *const libdist_memories[LIBDIST_MEMORIES] = {"malloc", "dist", "cuda"};

struct libdist {
    struct driver driver; /* first */
    dist_group *group;
    enum libdist_memory memory;
    const char *error; /* of this driver, not of the library; else NULL */
    size_t *counts;    /* equal blocks for the v-forms */
    dist_op premul;    /* or DIST_OP_COUNT */
    dist_work *works[2 * ORDER_WINDOW_MAX];
};

typedef dist_status (*libdist_fn)(struct libdist *libdist, const struct order *order,
                                  const void *in, void *out);

static size_t libdist_count(const struct libdist *libdist, const struct order *order)
{
    return order_count(order, libdist->driver.ranks);
}

static dist_op libdist_op(const struct libdist *libdist, const struct order *order)
{
    return order->op == DIST_PREMUL_SUM ? libdist->premul : order->op;
}

/* The last one written is the one that is looked at. */
static const size_t *libdist_counts(struct libdist *libdist, const struct order *order)
{
    size_t count = libdist_count(libdist, order);

    for (int r = 0; libdist->counts[0] != count && r < libdist->driver.ranks; r++)
        libdist->counts[libdist->driver.ranks - 1 - r] = count;
    return libdist->counts;
}

/* ---- collectives ---- */

static dist_status libdist_all_reduce(struct libdist *libdist, const struct order *order,
                                      const void *in, void *out)
{
    return dist_all_reduce(libdist->group, in, out, libdist_count(libdist, order), order->dtype,
                           libdist_op(libdist, order));
}

static dist_status libdist_all_reduce_coalesced(struct libdist *libdist, const struct order *order,
                                                const void *in, void *out)
{
    size_t count = libdist_count(libdist, order), counts[BENCH_COALESCED];
    void *buffers[BENCH_COALESCED];
    char *at = out;

    (void)in;
    for (size_t i = 0; i < BENCH_COALESCED; i++) {
        counts[i] = count / BENCH_COALESCED + (i < count % BENCH_COALESCED);
        buffers[i] = at;
        at += counts[i] * dist_dtype_size(order->dtype);
    }
    return dist_all_reduce_coalesced(libdist->group, buffers, counts, BENCH_COALESCED, order->dtype,
                                     libdist_op(libdist, order));
}

static dist_status libdist_reduce(struct libdist *libdist, const struct order *order,
                                  const void *in, void *out)
{
    return dist_reduce(libdist->group, in, out, libdist_count(libdist, order), order->dtype,
                       libdist_op(libdist, order), order->root);
}

static dist_status libdist_broadcast(struct libdist *libdist, const struct order *order,
                                     const void *in, void *out)
{
    (void)in;
    return dist_broadcast(libdist->group, out, libdist_count(libdist, order), order->dtype,
                          order->root);
}

static dist_status libdist_all_gather(struct libdist *libdist, const struct order *order,
                                      const void *in, void *out)
{
    return dist_all_gather(libdist->group, in, out, libdist_count(libdist, order), order->dtype);
}

static dist_status libdist_all_gather_v(struct libdist *libdist, const struct order *order,
                                        const void *in, void *out)
{
    return dist_all_gather_v(libdist->group, in, out, libdist_counts(libdist, order), NULL,
                             order->dtype);
}

static dist_status libdist_reduce_scatter(struct libdist *libdist, const struct order *order,
                                          const void *in, void *out)
{
    return dist_reduce_scatter(libdist->group, in, out, libdist_count(libdist, order), order->dtype,
                               libdist_op(libdist, order));
}

static dist_status libdist_reduce_scatter_v(struct libdist *libdist, const struct order *order,
                                            const void *in, void *out)
{
    return dist_reduce_scatter_v(libdist->group, in, out, libdist_counts(libdist, order),
                                 order->dtype, libdist_op(libdist, order));
}

static dist_status libdist_gather(struct libdist *libdist, const struct order *order,
                                  const void *in, void *out)
{
    return dist_gather(libdist->group, in, out, libdist_count(libdist, order), order->dtype,
                       order->root);
}

static dist_status libdist_gather_v(struct libdist *libdist, const struct order *order,
                                    const void *in, void *out)
{
    return dist_gather_v(libdist->group, in, libdist_count(libdist, order), out,
                         libdist_counts(libdist, order), NULL, order->dtype, order->root);
}

static dist_status libdist_scatter(struct libdist *libdist, const struct order *order,
                                   const void *in, void *out)
{
    return dist_scatter(libdist->group, in, out, libdist_count(libdist, order), order->dtype,
                        order->root);
}

static dist_status libdist_scatter_v(struct libdist *libdist, const struct order *order,
                                     const void *in, void *out)
{
    return dist_scatter_v(libdist->group, in, libdist_counts(libdist, order), NULL, out,
                          libdist_count(libdist, order), order->dtype, order->root);
}

static dist_status libdist_all_to_all(struct libdist *libdist, const struct order *order,
                                      const void *in, void *out)
{
    return dist_all_to_all(libdist->group, in, out, libdist_count(libdist, order), order->dtype);
}

static dist_status libdist_all_to_all_v(struct libdist *libdist, const struct order *order,
                                        const void *in, void *out)
{
    const size_t *counts = libdist_counts(libdist, order);

    return dist_all_to_all_v(libdist->group, in, counts, NULL, out, counts, NULL, order->dtype);
}

static dist_status libdist_barrier(struct libdist *libdist, const struct order *order,
                                   const void *in, void *out)
{
    (void)order, (void)in, (void)out;
    return dist_barrier(libdist->group);
}

static dist_status libdist_monitored_barrier(struct libdist *libdist, const struct order *order,
                                             const void *in, void *out)
{
    (void)order, (void)in, (void)out;
    return dist_monitored_barrier(libdist->group, 0);
}

/* ---- messages ---- */

static dist_status libdist_latency(struct libdist *libdist, const struct order *order,
                                   const void *in, void *out)
{
    size_t count = libdist_count(libdist, order);
    int rank = libdist->driver.rank;
    dist_status status = DIST_OK;

    if (rank == 0)
        status = dist_send(libdist->group, in, count, order->dtype, 1, LIBDIST_TAG);
    if (rank <= 1 && status == DIST_OK)
        status = dist_recv(libdist->group, out, count, order->dtype, 1 - rank, LIBDIST_TAG, NULL);
    if (rank == 1 && status == DIST_OK)
        status = dist_send(libdist->group, in, count, order->dtype, 0, LIBDIST_TAG);
    return status;
}

/* Waits for all that were started; the first failure counts. */
static dist_status libdist_wait(struct libdist *libdist, int works, dist_status status)
{
    for (int i = 0; i < works; i++) {
        dist_status ended = dist_wait(libdist->works[i]);

        if (status == DIST_OK)
            status = ended;
    }
    return status;
}

/* A window of messages, sent and received as asked, all started before any is waited for. */
static dist_status libdist_window(struct libdist *libdist, const struct order *order,
                                  const void *in, void *out, bool send, bool receive)
{
    size_t count = libdist_count(libdist, order);
    int works = 0, peer = 1 - libdist->driver.rank, window = order->window;
    dist_status status = DIST_OK;

    for (int i = 0; receive && status == DIST_OK && i < window; i++) {
        status = dist_irecv(libdist->group, out, count, order->dtype, peer, LIBDIST_TAG, NULL,
                            &libdist->works[works]);
        works += status == DIST_OK;
    }
    for (int i = 0; send && status == DIST_OK && i < window; i++) {
        status = dist_isend(libdist->group, in, count, order->dtype, peer, LIBDIST_TAG,
                            &libdist->works[works]);
        works += status == DIST_OK;
    }
    return libdist_wait(libdist, works, status);
}

static dist_status libdist_bw(struct libdist *libdist, const struct order *order, const void *in,
                              void *out)
{
    int rank = libdist->driver.rank;
    unsigned char back = 0;
    dist_status status;

    if (rank > 1)
        return DIST_OK;
    status = libdist_window(libdist, order, in, out, rank == 0, rank == 1);
    if (status != DIST_OK)
        return status;
    if (rank == 0)
        return dist_recv(libdist->group, &back, 1, DIST_UINT8, 1, LIBDIST_TAG, NULL);
    return dist_send(libdist->group, &back, 1, DIST_UINT8, 0, LIBDIST_TAG);
}

static dist_status libdist_bibw(struct libdist *libdist, const struct order *order, const void *in,
                                void *out)
{
    return libdist->driver.rank > 1 ? DIST_OK : libdist_window(libdist, order, in, out, true, true);
}

static const libdist_fn libdist_calls[OPERATION_COUNT] = {
#define LIBDIST_CALL(name, ...) libdist_##name,
    OPERATION_MAP(LIBDIST_CALL)
#undef LIBDIST_CALL
};

/* ---- as a driver ---- */

static dist_status libdist_call(struct driver *driver, const struct order *order, const void *in,
                                void *out)
{
    struct libdist *libdist = (struct libdist *)driver;

    libdist->error = NULL;
    return libdist_calls[order->operation->id](libdist, order, in, out);
}

static dist_status libdist_meet(struct driver *driver)
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

/* Is the memory a GPU's? What dist_alloc gives is, with backend nccl. */
static bool libdist_is_gpu(const struct libdist *libdist)
{
    return libdist->memory == LIBDIST_CUDA ||
           (libdist->memory == LIBDIST_DIST &&
            strcmp(dist_get_backend(libdist->group), "nccl") == 0);
}

static dist_status libdist_alloc_gpu(struct libdist *libdist, size_t bytes, void **memory_p)
{
    dist_status status;

    libdist->error = gpu_open(dist_get_local_rank(libdist->group));
    if (libdist->error)
        return DIST_ERR_SYSTEM;
    status = dist_set_stream(libdist->group, gpu_stream());
    if (status != DIST_OK || libdist->memory == LIBDIST_DIST)
        return status == DIST_OK ? dist_alloc(libdist->group, bytes, memory_p) : status;
    *memory_p = gpu_alloc(bytes);
    return libdist_wrong(libdist, *memory_p, "no memory of the GPU: give smaller sizes with -m");
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
    if (libdist_is_gpu(libdist))
        return libdist_alloc_gpu(libdist, bytes, memory_p);
    return dist_alloc(libdist->group, bytes, memory_p);
}

static void libdist_free_memory(struct driver *driver, void *memory, size_t bytes)
{
    struct libdist *libdist = (struct libdist *)driver;

    (void)bytes;
    if (libdist->memory == LIBDIST_CUDA)
        gpu_free(memory);
    else
        dist_free(libdist->group, memory);
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
                                      .barrier = libdist_meet,
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
