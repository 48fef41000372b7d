/* SPDX-License-Identifier: BSD-3-Clause */
/* libdist as a driver: one function a kind. */
#include "bench/worker.h"
#include "driver.h"
#include "pattern.h"
#include "tools/common/gpu.h"

#include <stdlib.h>
#include <string.h>

enum ours_memory { OURS_MALLOC, OURS_DIST, OURS_CUDA, OURS_MEMORIES };
/* Backends that know no others know this one. */
enum { OURS_TAG = 0 };

static const char *const ours_memories[OURS_MEMORIES] = {"malloc", "dist", "cuda"};

struct ours {
    struct driver driver; /* first */
    dist_group *group;
    enum ours_memory memory;
    const char *error; /* of ours, not of the library; else NULL */
    size_t *counts;    /* equal blocks for the v-forms */
    dist_op premul;    /* or DIST_OP_COUNT */
    dist_work *works[2 * ORDER_WINDOW_MAX];
};

typedef dist_status (*ours_fn)(struct ours *ours, const struct order *order, const void *in,
                               void *out);

static size_t ours_count(const struct ours *ours, const struct order *order)
{
    return order_count(order, ours->driver.ranks);
}

static dist_op ours_op(const struct ours *ours, const struct order *order)
{
    return order->op == DIST_PREMUL_SUM ? ours->premul : order->op;
}

/* The last one written is the one that is looked at. */
static const size_t *ours_counts(struct ours *ours, const struct order *order)
{
    size_t count = ours_count(ours, order);

    for (int r = 0; ours->counts[0] != count && r < ours->driver.ranks; r++)
        ours->counts[ours->driver.ranks - 1 - r] = count;
    return ours->counts;
}

/* ---- collectives ---- */

static dist_status ours_all_reduce(struct ours *ours, const struct order *order, const void *in,
                                   void *out)
{
    return dist_all_reduce(ours->group, in, out, ours_count(ours, order), order->dtype,
                           ours_op(ours, order));
}

static dist_status ours_all_reduce_coalesced(struct ours *ours, const struct order *order,
                                             const void *in, void *out)
{
    size_t count = ours_count(ours, order), counts[BENCH_COALESCED];
    void *buffers[BENCH_COALESCED];
    char *at = out;

    (void)in;
    for (size_t i = 0; i < BENCH_COALESCED; i++) {
        counts[i] = count / BENCH_COALESCED + (i < count % BENCH_COALESCED);
        buffers[i] = at;
        at += counts[i] * dist_dtype_size(order->dtype);
    }
    return dist_all_reduce_coalesced(ours->group, buffers, counts, BENCH_COALESCED, order->dtype,
                                     ours_op(ours, order));
}

static dist_status ours_reduce(struct ours *ours, const struct order *order, const void *in,
                               void *out)
{
    return dist_reduce(ours->group, in, out, ours_count(ours, order), order->dtype,
                       ours_op(ours, order), order->root);
}

static dist_status ours_broadcast(struct ours *ours, const struct order *order, const void *in,
                                  void *out)
{
    (void)in;
    return dist_broadcast(ours->group, out, ours_count(ours, order), order->dtype, order->root);
}

static dist_status ours_all_gather(struct ours *ours, const struct order *order, const void *in,
                                   void *out)
{
    return dist_all_gather(ours->group, in, out, ours_count(ours, order), order->dtype);
}

static dist_status ours_all_gather_v(struct ours *ours, const struct order *order, const void *in,
                                     void *out)
{
    return dist_all_gather_v(ours->group, in, out, ours_counts(ours, order), NULL, order->dtype);
}

static dist_status ours_reduce_scatter(struct ours *ours, const struct order *order, const void *in,
                                       void *out)
{
    return dist_reduce_scatter(ours->group, in, out, ours_count(ours, order), order->dtype,
                               ours_op(ours, order));
}

static dist_status ours_reduce_scatter_v(struct ours *ours, const struct order *order,
                                         const void *in, void *out)
{
    return dist_reduce_scatter_v(ours->group, in, out, ours_counts(ours, order), order->dtype,
                                 ours_op(ours, order));
}

static dist_status ours_gather(struct ours *ours, const struct order *order, const void *in,
                               void *out)
{
    return dist_gather(ours->group, in, out, ours_count(ours, order), order->dtype, order->root);
}

static dist_status ours_gather_v(struct ours *ours, const struct order *order, const void *in,
                                 void *out)
{
    return dist_gather_v(ours->group, in, ours_count(ours, order), out, ours_counts(ours, order),
                         NULL, order->dtype, order->root);
}

static dist_status ours_scatter(struct ours *ours, const struct order *order, const void *in,
                                void *out)
{
    return dist_scatter(ours->group, in, out, ours_count(ours, order), order->dtype, order->root);
}

static dist_status ours_scatter_v(struct ours *ours, const struct order *order, const void *in,
                                  void *out)
{
    return dist_scatter_v(ours->group, in, ours_counts(ours, order), NULL, out,
                          ours_count(ours, order), order->dtype, order->root);
}

static dist_status ours_all_to_all(struct ours *ours, const struct order *order, const void *in,
                                   void *out)
{
    return dist_all_to_all(ours->group, in, out, ours_count(ours, order), order->dtype);
}

static dist_status ours_all_to_all_v(struct ours *ours, const struct order *order, const void *in,
                                     void *out)
{
    const size_t *counts = ours_counts(ours, order);

    return dist_all_to_all_v(ours->group, in, counts, NULL, out, counts, NULL, order->dtype);
}

static dist_status ours_barrier(struct ours *ours, const struct order *order, const void *in,
                                void *out)
{
    (void)order, (void)in, (void)out;
    return dist_barrier(ours->group);
}

static dist_status ours_monitored_barrier(struct ours *ours, const struct order *order,
                                          const void *in, void *out)
{
    (void)order, (void)in, (void)out;
    return dist_monitored_barrier(ours->group, 0);
}

/* ---- messages ---- */

static dist_status ours_latency(struct ours *ours, const struct order *order, const void *in,
                                void *out)
{
    size_t count = ours_count(ours, order);
    int rank = ours->driver.rank;
    dist_status status = DIST_OK;

    if (rank == 0)
        status = dist_send(ours->group, in, count, order->dtype, 1, OURS_TAG);
    if (rank <= 1 && status == DIST_OK)
        status = dist_recv(ours->group, out, count, order->dtype, 1 - rank, OURS_TAG, NULL);
    if (rank == 1 && status == DIST_OK)
        status = dist_send(ours->group, in, count, order->dtype, 0, OURS_TAG);
    return status;
}

/* Waits for all that were started; the first failure counts. */
static dist_status ours_wait(struct ours *ours, int works, dist_status status)
{
    for (int i = 0; i < works; i++) {
        dist_status ended = dist_wait(ours->works[i]);

        if (status == DIST_OK)
            status = ended;
    }
    return status;
}

/* A window of messages, sent and received as asked, all started before any is waited for. */
static dist_status ours_window(struct ours *ours, const struct order *order, const void *in,
                               void *out, bool send, bool receive)
{
    size_t count = ours_count(ours, order);
    int works = 0, peer = 1 - ours->driver.rank, window = order->window;
    dist_status status = DIST_OK;

    for (int i = 0; receive && status == DIST_OK && i < window; i++) {
        status = dist_irecv(ours->group, out, count, order->dtype, peer, OURS_TAG, NULL,
                            &ours->works[works]);
        works += status == DIST_OK;
    }
    for (int i = 0; send && status == DIST_OK && i < window; i++) {
        status =
            dist_isend(ours->group, in, count, order->dtype, peer, OURS_TAG, &ours->works[works]);
        works += status == DIST_OK;
    }
    return ours_wait(ours, works, status);
}

static dist_status ours_bw(struct ours *ours, const struct order *order, const void *in, void *out)
{
    int rank = ours->driver.rank;
    unsigned char back = 0;
    dist_status status;

    if (rank > 1)
        return DIST_OK;
    status = ours_window(ours, order, in, out, rank == 0, rank == 1);
    if (status != DIST_OK)
        return status;
    if (rank == 0)
        return dist_recv(ours->group, &back, 1, DIST_UINT8, 1, OURS_TAG, NULL);
    return dist_send(ours->group, &back, 1, DIST_UINT8, 0, OURS_TAG);
}

static dist_status ours_bibw(struct ours *ours, const struct order *order, const void *in,
                             void *out)
{
    return ours->driver.rank > 1 ? DIST_OK : ours_window(ours, order, in, out, true, true);
}

static const ours_fn ours_calls[KIND_COUNT] = {
#define OURS_CALL(name, ...) ours_##name,
    KIND_MAP(OURS_CALL)
#undef OURS_CALL
};

/* ---- as a driver ---- */

static dist_status ours_call(struct driver *driver, const struct order *order, const void *in,
                             void *out)
{
    struct ours *ours = (struct ours *)driver;

    ours->error = NULL;
    return ours_calls[order->kind->id](ours, order, in, out);
}

static dist_status ours_meet(struct driver *driver)
{
    return dist_barrier(((struct ours *)driver)->group);
}

static const char *ours_error(struct driver *driver)
{
    return ((struct ours *)driver)->error ? ((struct ours *)driver)->error : dist_last_error();
}

static dist_status ours_wrong(struct ours *ours, bool good, const char *error)
{
    ours->error = good ? NULL : error;
    return good ? DIST_OK : DIST_ERR_SYSTEM;
}

/* Is the memory a GPU's? What dist_alloc gives is, with backend nccl. */
static bool ours_is_gpu(const struct ours *ours)
{
    return ours->memory == OURS_CUDA ||
           (ours->memory == OURS_DIST && strcmp(dist_get_backend(ours->group), "nccl") == 0);
}

static dist_status ours_take_gpu(struct ours *ours, size_t bytes, void **memory_p)
{
    dist_status status;

    ours->error = gpu_open(dist_get_local_rank(ours->group));
    if (ours->error)
        return DIST_ERR_SYSTEM;
    status = dist_set_stream(ours->group, gpu_stream());
    if (status != DIST_OK || ours->memory == OURS_DIST)
        return status == DIST_OK ? dist_alloc(ours->group, bytes, memory_p) : status;
    *memory_p = gpu_alloc(bytes);
    return ours_wrong(ours, *memory_p, "no memory of the GPU: give smaller sizes with -m");
}

static dist_status ours_put(struct driver *driver, void *to, const void *from, size_t bytes)
{
    return ours_wrong((struct ours *)driver, gpu_put(to, from, bytes), "a copy to the GPU failed");
}

static dist_status ours_get(struct driver *driver, void *to, const void *from, size_t bytes)
{
    return ours_wrong((struct ours *)driver, gpu_get(to, from, bytes),
                      "a copy from the GPU failed");
}

static dist_status ours_synchronize(struct driver *driver)
{
    return ours_wrong((struct ours *)driver, gpu_synchronize(), "the GPU's stream failed");
}

static dist_status ours_take(struct driver *driver, size_t bytes, void **memory_p)
{
    struct ours *ours = (struct ours *)driver;

    ours->error = NULL;
    if (ours_is_gpu(ours))
        return ours_take_gpu(ours, bytes, memory_p);
    if (ours->memory == OURS_DIST)
        return dist_alloc(ours->group, bytes, memory_p);
    if (posix_memalign(memory_p, 4096, bytes) == 0)
        return DIST_OK;
    ours->error = "no memory for the buffers: give smaller sizes with -m";
    return DIST_ERR_NO_MEMORY;
}

static void ours_give(struct driver *driver, void *memory, size_t bytes)
{
    struct ours *ours = (struct ours *)driver;

    (void)bytes;
    if (ours->memory == OURS_CUDA)
        gpu_free(memory);
    else if (ours->memory == OURS_DIST)
        dist_free(ours->group, memory);
    else
        free(memory);
}

static int ours_memory_find(const char *name)
{
    for (int i = 0; i < OURS_MEMORIES; i++) {
        if (strcmp(ours_memories[i], name) == 0)
            return i;
    }
    return -1;
}

bool ours_has_memory(const char *name)
{
    return ours_memory_find(name) >= 0;
}

dist_status ours_new(dist_group *group, const char *memory, struct driver **subject_p)
{
    struct ours *ours = calloc(1, sizeof(*ours));
    dist_status status = DIST_ERR_NO_MEMORY;

    if (!ours)
        return status;
    ours->group = group;
    ours->memory = (enum ours_memory)ours_memory_find(memory);
    ours->driver = (struct driver){.rank = dist_get_rank(group),
                                   .ranks = dist_get_world_size(group),
                                   .barrier = ours_meet,
                                   .call = ours_call,
                                   .take = ours_take,
                                   .give = ours_give,
                                   .error = ours_error};
    if (ours_is_gpu(ours)) {
        ours->driver.put = ours_put;
        ours->driver.get = ours_get;
        ours->driver.synchronize = ours_synchronize;
    }
    ours->premul = DIST_OP_COUNT;
    ours->counts = calloc((size_t)ours->driver.ranks, sizeof(size_t));
    if (ours->counts)
        status = dist_op_create_premul_sum(PATTERN_FACTOR, &ours->premul);
    if (status != DIST_OK) {
        ours_free(&ours->driver);
        return status;
    }
    *subject_p = &ours->driver;
    return DIST_OK;
}

void ours_free(struct driver *driver)
{
    struct ours *ours = (struct ours *)driver;

    if (!ours)
        return;
    if (ours->premul != DIST_OP_COUNT)
        dist_op_free(ours->premul);
    free(ours->counts);
    free(ours);
}
