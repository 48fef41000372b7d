/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend nccl: state, calls, and internal interfaces; private to the module. */
#ifndef DISTI_BACKENDS_NCCL_NCCL_H
#define DISTI_BACKENDS_NCCL_NCCL_H

#include "backends/nccl/abi.h"
#include "device/driver.h"

#include <dist/backend.h>
#include <stdatomic.h>
#include <sys/queue.h>

/* Maximal number of unused events that are cached. */
#define DISTI_NCCL_EVENTS 64

/* Host memory is copied through a pinned buffer of DISTI_NCCL_SLOTS slots. */
#define DISTI_NCCL_SLOTS 4
#define DISTI_NCCL_SLOT_BYTES ((size_t)1 << 20)

struct disti_nccl_stage;
struct disti_nccl_region;
struct disti_nccl_memory;

/*
 * The states of a call:
 *
 *     held --> issued --> ended                  device memory
 *     held --> issued --> fetched --> ended      host memory: results are copied back
 *
 * Sends and receives are held, to be started together with other calls.
 */
struct disti_nccl_call {
    TAILQ_ENTRY(disti_nccl_call) next;
    struct dist_call call; /* as passed to NCCL: with device memory */
    struct dist_ticket *ticket;
    struct disti_nccl_stage *stage; /* NULL: nothing is in host memory */
    void *stream;                   /* the stream of the call */
    void *end;                      /* event recorded after the call; NULL while the call is held */
    struct disti_nccl_call *sent_copy; /* for a message to this rank itself: the copy that is
                                          received; freed with this call */
    bool captured;                     /* the call has been captured into a graph */
    bool done;                         /* the device has completed the call */
};

/* Calls, oldest first. */
TAILQ_HEAD(disti_nccl_queue, disti_nccl_call);

/* A buffer in pinned memory: a ring of slots for copies from and to host memory. */
struct disti_nccl_pinned {
    char *memory;
    void *events[DISTI_NCCL_SLOTS]; /* recorded after the last copy from or to the slot */
    unsigned turn;
};

/*
 * The device resources of a group. The group holds a reference, and so does every thread that
 * closes the group, since NCCL may block such a thread for longer than the group exists. The last
 * reference releases the resources.
 */
struct disti_nccl_gpu {
    atomic_int holders;
    const struct disti_driver *driver;
    const struct disti_nccl_api *api;
    int handle;        /* the driver's handle of the device */
    void *context;     /* retained; NULL: none */
    void *stream;      /* for calls that do not run on the program's stream */
    void *copies;      /* stream of the copies from and to host memory */
    void *order_event; /* event for ordering two streams; free again after each use */
    void *spare[DISTI_NCCL_EVENTS];
    int spares;
    struct disti_nccl_pinned pinned;
    struct disti_nccl_region *regions; /* device memory for data from host memory */
    void *one;                         /* one byte of device memory, for barriers */
    void *closing; /* the communicator that a thread is ending; the group no longer has it */
};

struct disti_nccl_state {
    const struct dist_host *host;
    const struct disti_driver *driver;
    const struct disti_nccl_api *api;
    int rank, ranks;
    int timeout_ms;
    const struct dist_backend_config *opening; /* NULL after opening */
    int device; /* the device's index among the visible devices; -1: none yet */
    struct disti_nccl_gpu *gpu;
    void *comm;                     /* NULL: none, or aborted */
    struct disti_nccl_queue held;   /* not passed to NCCL yet */
    struct disti_nccl_queue issued; /* passed to NCCL, not ended */
    /* sends and receives of this rank with itself that are not matched yet */
    struct disti_nccl_queue unmatched;
    struct disti_nccl_queue
        kept;   /* copies of messages to this rank itself, which captured graphs read */
    bool batch; /* a batch has begun: the calls posted in it are started together at its end */
    int64_t quiet_ns;                 /* held calls are started if nothing is posted until then */
    int64_t check_ns;                 /* time of the next check for asynchronous errors */
    struct disti_nccl_memory *memory; /* memory from alloc */
};

/* ---- nccl.c: contexts, streams, events ---- */

/*
 * disti_nccl_enter makes the group's device current in this thread until disti_nccl_exit, in a mode
 * that does not disturb the capture of graphs. Returns false if the device cannot be used.
 */
struct disti_nccl_visit {
    int mode;
};
bool disti_nccl_enter(const struct disti_nccl_gpu *gpu, struct disti_nccl_visit *visit);
void disti_nccl_exit(const struct disti_nccl_gpu *gpu, struct disti_nccl_visit *visit);

/* Set an error: this rank is out of host memory, or cannot use its device. */
dist_status disti_nccl_no_memory(const struct disti_nccl_state *nccl);
dist_status disti_nccl_no_device(const struct disti_nccl_state *nccl);

/* Both return in bounded time, whatever NCCL does. Longer work continues in a background thread.
 * After abort, memory from alloc is still valid. */
void disti_nccl_close(void *state);
void disti_nccl_abort(void *state);

/* ---- post.c: calls of NCCL ---- */

/* Sets an error with NCCL's texts. `what` is the call or the attempted action. */
dist_status disti_nccl_fail(const struct disti_nccl_state *nccl, int result, const char *what);

/* Waits until the communicator has accepted its calls, at most for the timeout. The calls are then
 * on their streams, not completed. The first call between two ranks connects them. */
dist_status disti_nccl_wait(struct disti_nccl_state *nccl, const char *what);

/* True if NCCL supports the reduction of this type with this operation. */
bool disti_nccl_has_op(dist_op op, dist_dtype dtype);

dist_status disti_nccl_post(void *state, const struct dist_call *call, struct dist_ticket *ticket);
dist_status disti_nccl_join(void *state, struct dist_ticket *ticket, void *stream);
dist_status disti_nccl_batch(void *state, bool begin);

/* Allocates uninitialized device memory. Returns 0 if there is none. */
uintptr_t disti_nccl_device_memory(struct disti_nccl_state *nccl, size_t bytes);

void disti_nccl_call_free(struct disti_nccl_state *nccl, struct disti_nccl_call *c);

int disti_nccl_progress(void *state);
void disti_nccl_describe(const void *state, char *text, size_t size);

/* ---- data in host memory ---- */

/* Device memory, used by one call at a time. */
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

/* The input or output of a call: its pieces of host memory, concatenated in a region. */
struct disti_nccl_side {
    struct disti_nccl_piece *pieces;
    /* by rank, in elements: offsets of the blocks in the region; NULL: no blocks */
    size_t *offsets;
    size_t bytes; /* total size of the pieces; 0: nothing is in host memory */
    size_t done;  /* of OUT: bytes copied to host memory so far */
    int piece;    /* piece, within: the next byte to copy is byte `within` of this piece */
    size_t within;
    struct disti_nccl_region *region;
};

struct disti_nccl_stage {
    struct disti_nccl_side in, out;
};

/* Returns device memory as a pointer, for NCCL. */
static inline void *disti_nccl_pointer(uintptr_t memory)
{
    return (void *)memory; /* NOLINT */
}

#endif
