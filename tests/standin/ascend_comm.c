/* SPDX-License-Identifier: BSD-3-Clause */
/* Stand-in for Ascend: communicators of HCCL, and messages through memory that all ranks map. */
#include "standin/ascend_comm.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define RING_BYTES ((size_t)1 << 16)

/* Bytes from one rank to another. */
struct ring {
    atomic_ullong written, taken;
    char data[RING_BYTES];
};

/* A file that all ranks map. The index of the ring from rank a to rank b is a * ranks + b. */
struct ascend_shared {
    atomic_int joined, linked;
    struct ring rings[];
};

struct root {
    char path[4108];
};

void ascend_sleep(void)
{
    const struct timespec nap = {.tv_nsec = 50 * 1000};

    nanosleep(&nap, NULL);
}

/* ---- joining ---- */

CALL(HcclGetRootInfo, struct root *root_p)
{
    const char *folder = getenv("TMPDIR");
    int fd;

    snprintf(root_p->path, sizeof(root_p->path), "%s/standin-hccl.XXXXXX",
             folder ? folder : "/tmp");
    fd = mkstemp(root_p->path);
    if (fd < 0)
        return ASCEND_E_INTERNAL;
    close(fd);
    return 0;
}

static long comm_connect_ms(void)
{
    const char *text = getenv("HCCL_CONNECT_TIMEOUT");

    return 1000 * (text ? strtol(text, NULL, 10) : 120);
}

/* Waits until all ranks have incremented the counter. */
static int comm_gather(const struct ascend_comm *comm, atomic_int *count)
{
    long left = comm_connect_ms() * 20;

    atomic_fetch_add(count, 1);
    while (atomic_load(count) < comm->ranks) {
        if (atomic_load(&comm->gone))
            return ASCEND_E_INTERNAL;
        if (left-- <= 0)
            return ASCEND_E_TCP_CONNECT;
        ascend_sleep();
    }
    return 0;
}

CALL(HcclCommInitRootInfo, uint32_t ranks, const struct root *root, uint32_t rank, void **comm_p)
{
    struct ascend_comm *comm = calloc(1, sizeof(*comm));
    int fd = open(root->path, O_RDWR), error;

    comm->ranks = (int)ranks;
    comm->rank = (int)rank;
    comm->bytes = sizeof(struct ascend_shared) + ranks * ranks * sizeof(struct ring);
    if (fd < 0 || ftruncate(fd, (off_t)comm->bytes))
        return ASCEND_E_INTERNAL;
    comm->shared = mmap(NULL, comm->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (comm->shared == MAP_FAILED)
        return ASCEND_E_MEMORY;
    error = comm_gather(comm, &comm->shared->joined);
    unlink(root->path);
    *comm_p = comm;
    return error;
}

int ascend_link(struct ascend_comm *comm)
{
    int error = comm->is_linked ? 0 : comm_gather(comm, &comm->shared->linked);

    comm->is_linked = true;
    return error;
}

/* Running operations end with an error. */
CALL(HcclCommDestroy, void *handle)
{
    struct ascend_comm *comm = handle;

    atomic_store(&comm->gone, 1);
    while (atomic_load(&comm->busy))
        ascend_sleep();
    munmap(comm->shared, comm->bytes);
    free(comm);
    return 0;
}

CALL(HcclGetCommAsyncError, void *handle, int *error_p)
{
    *error_p = atomic_load(&((struct ascend_comm *)handle)->error);
    return 0;
}

ASCEND_API const char *HcclGetErrorString(int error);
const char *HcclGetErrorString(int error)
{
    switch (error) {
    case ASCEND_E_PARA:
        return "parameter error";
    case ASCEND_E_NOT_SUPPORT:
        return "not supported";
    case ASCEND_E_TCP_CONNECT:
        return "tcp connect error";
    case ASCEND_E_REMOTE:
        return "error cqe";
    default:
        return "internal error";
    }
}

/* ---- messages ---- */

static struct ring *comm_ring(const struct ascend_comm *comm, int from, int to)
{
    return &comm->shared->rings[from * comm->ranks + to];
}

/* Copies the available bytes, or as many as there is space for, from position *moved. Returns their
 * number. */
static uint64_t comm_move(struct ring *ring, bool sends, char *data, uint64_t bytes)
{
    uint64_t written = atomic_load(&ring->written), taken = atomic_load(&ring->taken);
    uint64_t have = sends ? RING_BYTES - (written - taken) : written - taken;
    uint64_t n = bytes < have ? bytes : have;

    for (uint64_t i = 0; i < n; i++) {
        char *at = &ring->data[((sends ? written : taken) + i) % RING_BYTES];

        if (sends)
            *at = data[i];
        else
            data[i] = *at;
    }
    atomic_fetch_add(sends ? &ring->written : &ring->taken, n);
    return n;
}

/* Returns 1 if data were moved, 0 if not, below 0 if the two sides describe different messages. */
static int comm_step(const struct ascend_comm *comm, struct ascend_part *p)
{
    struct ring *ring =
        p->sends ? comm_ring(comm, comm->rank, p->peer) : comm_ring(comm, p->peer, comm->rank);
    uint64_t head[2] = {p->head[0], p->head[1]}, n = 0;

    if (p->head_moved < sizeof(head)) {
        if (!p->sends && atomic_load(&ring->written) - atomic_load(&ring->taken) < sizeof(head))
            return 0;
        if (p->sends &&
            RING_BYTES - (atomic_load(&ring->written) - atomic_load(&ring->taken)) < sizeof(head))
            return 0;
        p->head_moved = comm_move(ring, p->sends, (char *)head, sizeof(head));
        if (memcmp(head, p->head, sizeof(head)) != 0)
            return -1;
        return 1;
    }
    n = comm_move(ring, p->sends, p->data + p->moved, p->bytes - p->moved);
    p->moved += n;
    return n > 0;
}

int ascend_exchange(struct ascend_comm *comm, struct ascend_part *parts, int count, uint64_t what)
{
    bool done = false;

    for (int i = 0; i < count; i++) {
        parts[i].head[0] = what;
        parts[i].head[1] = parts[i].bytes;
    }
    while (!done) {
        bool moved = false;

        done = true;
        for (int i = 0; i < count; i++) {
            struct ascend_part *p = &parts[i];
            bool open = p->head_moved < sizeof(p->head) || p->moved < p->bytes;
            int step = open ? comm_step(comm, p) : 0;

            if (step < 0)
                return ASCEND_E_PARA;
            moved = moved || step > 0;
            done = done && !open;
        }
        if (atomic_load(&comm->gone))
            return ASCEND_E_INTERNAL;
        if (!moved && !done)
            ascend_sleep();
    }
    return 0;
}
