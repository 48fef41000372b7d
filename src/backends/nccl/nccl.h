/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend nccl, inside: its state, its calls, and what its files give each other. */
#ifndef DISTI_BACKENDS_NCCL_NCCL_H
#define DISTI_BACKENDS_NCCL_NCCL_H

#include "backends/nccl/abi.h"
#include "device/driver.h"

#include <dist/backend.h>
#include <stdatomic.h>
#include <sys/queue.h>

/* Events that nobody uses are kept, up to so many. */
#define DISTI_NCCL_EVENTS 64

/* Host memory goes through so much pinned memory, and so many pieces of it at a time. */
#define DISTI_NCCL_SLOTS 4
#define DISTI_NCCL_SLOT_BYTES ((size_t)1 << 20)

struct disti_nccl_stage;
struct disti_nccl_region;
struct disti_nccl_memory;

/*
 * A call from its post to its end:
 *
 *     held --> issued --> ended        memory of the device
 *     held --> issued --> fetched --> ended      of the host: its results are copied back
 *
 * Held are sends and receives that wait for others to be started with them.
 */
struct disti_nccl_call {
    TAILQ_ENTRY(disti_nccl_call) next;
    struct dist_call call; /* as it is given to NCCL: on memory of the device */
    struct dist_ticket *ticket;
    struct disti_nccl_stage *stage; /* NULL: nothing is in host memory */
    void *stream;                   /* where it goes */
    void *end;                      /* event: the device is done with it; NULL while it is held */
    struct disti_nccl_call *parcel; /* of a rank to itself: what is received, freed with this */
    bool captured;                  /* it becomes part of a graph */
    bool done;                      /* the device is */
};

/* Calls, oldest first. */
TAILQ_HEAD(disti_nccl_queue, disti_nccl_call);

/* Pinned memory, a ring of pieces through which host memory goes. */
struct disti_nccl_pinned {
    char *memory;
    void *events[DISTI_NCCL_SLOTS]; /* the copy from or to this piece is done */
    unsigned turn;
};

/*
 * What a group has on its device, and all that a thread needs that closes the group. The group
 * holds it, and so does every such thread, since NCCL may keep one for longer than the group lives.
 * The last of them to let go releases all of it.
 */
struct disti_nccl_gpu {
    atomic_int holders;
    const struct disti_driver *driver;
    const struct disti_nccl_api *api;
    int handle;    /* the driver's number of the device */
    void *context; /* retained; NULL: there is none */
    void *stream;  /* of calls that run beside the program's stream */
    void *copies;  /* the stream of copies from and to host memory */
    void *moment;  /* event: what was on a stream at a moment; used and forgotten at once */
    void *spare[DISTI_NCCL_EVENTS];
    int spares;
    struct disti_nccl_pinned pinned;
    struct disti_nccl_region *regions; /* device memory for host memory's data */
    void *one;                         /* one byte of the device, for barriers */
    void *closing; /* the communicator, from when a thread ends it: the group has none any more */
};

struct disti_nccl_state {
    const struct dist_host *host;
    const struct disti_driver *driver;
    const struct disti_nccl_api *api;
    int rank, ranks;
    int timeout_ms;
    const struct dist_backend_config *opening; /* NULL once it is open */
    int device; /* its number among those that are visible; -1: none yet */
    struct disti_nccl_gpu *gpu;
    void *comm;                       /* NULL: none, or it was aborted */
    struct disti_nccl_queue held;     /* not given to NCCL yet */
    struct disti_nccl_queue issued;   /* given to NCCL, not ended */
    struct disti_nccl_queue parcels;  /* from this rank to itself, one end is not there yet */
    struct disti_nccl_queue kept;     /* such, which graphs read */
    bool batch;                       /* more posts follow, which are to start together */
    int64_t quiet_ns;                 /* held calls are started if nothing is posted until then */
    int64_t look_ns;                  /* when NCCL is asked for errors again */
    struct disti_nccl_memory *memory; /* what alloc gave */
};

/* ---- nccl.c: contexts, streams, events ---- */

/* This thread works on the group's device, and disturbs no capture, until exit. */
struct disti_nccl_visit {
    int mode;
};
bool disti_nccl_enter(const struct disti_nccl_gpu *gpu, struct disti_nccl_visit *visit);
void disti_nccl_exit(const struct disti_nccl_gpu *gpu, struct disti_nccl_visit *visit);

/* Fail, as this rank has no memory of the host left, or cannot enter its device. */
dist_status disti_nccl_no_memory(const struct disti_nccl_state *nccl);
dist_status disti_nccl_no_device(const struct disti_nccl_state *nccl);

/*
 * Both return in bounded time, whatever NCCL does: what takes longer goes on in a thread, which the
 * group does not wait for. After abort the memory that alloc gave is still there.
 */
void disti_nccl_close(void *state);
void disti_nccl_abort(void *state);

/* ---- post.c: calls of NCCL ---- */

/* Fails with NCCL's texts. `what`: the call, or what was tried. */
dist_status disti_nccl_fail(const struct disti_nccl_state *nccl, int result, const char *what);

/*
 * Waits until the communicator has done what it was told, at most the timeout. That is the calls'
 * way to the streams, not their end there; the first between two ranks connects them.
 */
dist_status disti_nccl_wait(struct disti_nccl_state *nccl, const char *what);

/* True if NCCL reduces elements of this type with this operation. */
bool disti_nccl_has_op(dist_op op, dist_dtype dtype);

dist_status disti_nccl_post(void *state, const struct dist_call *call, struct dist_ticket *ticket);
dist_status disti_nccl_join(void *state, struct dist_ticket *ticket, void *stream);
dist_status disti_nccl_batch(void *state, bool begin);

/* Device memory that is not zeroed; 0: there is none. */
uintptr_t disti_nccl_device_memory(struct disti_nccl_state *nccl, size_t bytes);

void disti_nccl_call_free(struct disti_nccl_state *nccl, struct disti_nccl_call *c);

int disti_nccl_progress(void *state);
void disti_nccl_describe(const void *state, char *text, size_t size);

/* Backend nccl: what a call reads and writes in host memory. */

/* Memory of the device, used by one call at a time. */
struct disti_nccl_region {
    struct disti_nccl_region *next;
    uintptr_t memory;
    size_t bytes;
    bool used;
};

/* A part of host memory. */
struct disti_nccl_piece {
    char *data;
    size_t bytes;
};

/* What a call reads, or what it writes: its pieces, one behind the other in a region. */
struct disti_nccl_side {
    struct disti_nccl_piece *pieces;
    size_t *offsets; /* by rank, in elements: of the blocks in the region; NULL: there are none */
    size_t bytes;    /* of all pieces; 0: nothing is in host memory */
    size_t done;     /* bytes copied */
    int piece;       /* where the copy is */
    size_t within;
    struct disti_nccl_region *region;
};

struct disti_nccl_stage {
    struct disti_nccl_side in, out;
};

/* Memory of the device as a pointer, as NCCL takes it. */
static inline void *disti_nccl_pointer(uintptr_t memory)
{
    return (void *)memory; /* NOLINT */
}

#endif
