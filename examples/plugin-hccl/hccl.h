/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend hccl, internal: the group, its calls, and the functions that the files share. */
#ifndef PLUGIN_HCCL_H
#define PLUGIN_HCCL_H

#include "hccl_abi.h"

#include <dist/backend.h>
#include <pthread.h>
#include <stdatomic.h>

/* Number of events that streams may still wait for; older ones are destroyed. */
#define HCCL_RETIRED 256

/* How long close and abort wait for HCCL before they give up. */
#define HCCL_LEAVE_MS 2000

struct hccl_group;

/*
 * A job of the group's thread, which runs jobs one after the other:
 *
 *     QUEUED ---> ISSUED ---> DONE          ISSUED: on its stream, followed by an event
 *        \___________\____--> FAILED        see status and text
 */
enum hccl_stage { HCCL_QUEUED, HCCL_ISSUED, HCCL_DONE, HCCL_FAILED };

struct hccl_job {
    struct hccl_job *next; /* in the queue */
    void (*run)(struct hccl_group *g, struct hccl_job *job);
    atomic_int stage;
    dist_status status;
    char text[512];
};

/* Device memory that is reused. */
struct hccl_region {
    struct hccl_region *next;
    void *memory;
    size_t bytes;
};

/*
 * Blocks of a buffer, in elements: block i has counts[i] elements at offsets[i]. If counts is NULL,
 * there is one block of `count` elements at 0.
 */
struct hccl_blocks {
    size_t blocks;
    size_t count;
    const size_t *counts, *offsets;
};

/* One of the two buffers of a call. */
struct hccl_side {
    char *user;
    struct hccl_blocks blocks;
    size_t bytes;   /* from the beginning of the buffer to the end of the last block */
    bool on_host;   /* must be copied */
    bool on_device; /* on_host and on_device are both false if the buffer is empty */
    char *device;   /* the address for HCCL: user, or the region's memory */
    struct hccl_region *region;
};

/* A collective, from post to completion. */
struct hccl_call {
    struct hccl_job job;
    struct hccl_call *next; /* in the group's list; protected by the core's lock */
    struct dist_call call;
    struct dist_ticket *ticket;
    struct hccl_side in, out;
    struct hccl_region *spare;     /* for results that are not used */
    void *arrays;                  /* read by HCCL during the call */
    void *stream, *end;            /* the call's stream, and the event after the call on it */
    bool on_stream;                /* the call's manner is DIST_MANNER_STREAM */
    struct hccl_call *next_issued; /* in the thread's list of issued calls */
};

/* A send or receive of device memory, through a copy on the host. */
struct hccl_pair {
    struct hccl_pair *next;
    struct dist_call call; /* the call with the copy as its buffer */
    struct dist_ticket ticket, *users;
    void *user;
    char *copy;
    size_t bytes;
};

/*
 * A group. If HCCL never returns, the thread keeps the group for ever, even after the core's state
 * has been freed. Only this thread calls HCCL, because HCCL may block (the first calls connect the
 * ranks).
 */
struct hccl_group {
    const struct hccl_api *api;
    const struct dist_host *host;
    int rank, ranks, device, timeout_ms;
    void *context;      /* context of the device; set by the thread when it starts */
    void *_Atomic comm; /* NULL: none, or another thread is destroying it */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct hccl_job *first, **last; /* the queue */
    bool stop;                      /* request to the thread to end */
    bool ended;                     /* the thread has ended */

    /* Used only by the thread. */
    void *stream; /* for calls that do not use the program's stream */
    struct hccl_call *issued, **issued_end;
    struct hccl_call *newest; /* the last issued call, until it has completed */
    struct hccl_region *regions;
    void *retired[HCCL_RETIRED];
    unsigned retirements;
    int64_t next_check_ns; /* time of the next error check of HCCL */
};

/* ---- hccl_library.c ---- */

/* Loads the libraries, once per process. NULL: writes the reason and what to do. */
const struct hccl_api *hccl_load(char *reason, size_t reason_size);

/* Writes "text (number N): last message of CANN" for an error of HCCL, or of the runtime. */
void hccl_explain(const struct hccl_api *api, bool runtime, int error, char *text, size_t size);

/* ---- hccl_shape.c: which memory a call reads and writes ---- */

void hccl_shape(const struct dist_call *call, int rank, int ranks, struct hccl_blocks *in_p,
                struct hccl_blocks *out_p);
/* Returns the number of elements from the beginning of the buffer to the end of the last block. */
size_t hccl_extent(const struct hccl_blocks *blocks);
/* Returns offset and count of block i, in elements. */
void hccl_block(const struct hccl_blocks *blocks, size_t i, size_t *offset_p, size_t *count_p);
/* True if the call moves no data, which all ranks can see from its arguments. */
bool hccl_is_empty(const struct dist_call *call);

/* ---- hccl_memory.c ---- */

/* True if `memory` is on the device; README.md has the rule. Callable in any thread. */
bool hccl_is_device(const struct hccl_group *g, const void *memory);

/* Sets the group's context in this thread until hccl_leave(previous). False: failed. */
bool hccl_enter(const struct hccl_group *g, void **previous_p);
void hccl_leave(const struct hccl_group *g, void *previous);

void *hccl_alloc(void *state, size_t bytes);
void hccl_free(void *state, void *memory);

/* Acquires device memory for temporary use; only in the group's thread. NULL: out of memory. */
struct hccl_region *hccl_region_acquire(struct hccl_group *g, size_t bytes);
void hccl_region_release(struct hccl_group *g, struct hccl_region *region);

/* ---- hccl_worker.c: the group's thread ---- */

/*
 * Starts the thread. Its first job is enqueued by the caller, which waits for it with hccl_wait.
 */
dist_status hccl_start(struct hccl_group *g);
void hccl_enqueue(struct hccl_group *g, struct hccl_job *job);
/* Waits until the job has reached the stage, at most the group's timeout. Reports failures. */
dist_status hccl_wait(struct hccl_group *g, struct hccl_job *job, enum hccl_stage stage);
/* Marks the job as failed; called by the thread while it runs the job. */
void hccl_job_fail(struct hccl_job *job, dist_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Sets the job's stage and wakes the threads that wait for it. */
void hccl_job_reach(struct hccl_group *g, struct hccl_job *job, enum hccl_stage stage);
bool hccl_stopped(struct hccl_group *g);
/*
 * Ends the thread; bounded in time. True: it has ended, and the caller frees g. False: the thread
 * is blocked and keeps g.
 */
bool hccl_end(struct hccl_group *g);
int64_t hccl_now_ns(void);

/* ---- hccl_call.c: a collective in the group's thread ---- */

void hccl_call_run(struct hccl_group *g, struct hccl_job *job);
/* Polls the calls on the streams. True: a call has completed. */
bool hccl_call_poll(struct hccl_group *g);
/* Releases the device resources of a completed call. */
void hccl_call_clear(struct hccl_group *g, struct hccl_call *c);
/* Records an event on the stream. NULL: failed; *error_p is the error. */
void *hccl_event(struct hccl_group *g, void *stream, int *error_p);
/* Destroys the event after HCCL_RETIRED further events, because streams may still wait for it. */
void hccl_retire(struct hccl_group *g, void *event);

/* ---- hccl_issue.c ---- */

/*
 * Convert to HCCL's numbers. HCCL_TYPE_NONE, HCCL_OP_NONE: HCCL has no equivalent that satisfies
 * the rules of dist.h.
 */
int hccl_dtype(dist_dtype dtype);
int hccl_op(dist_op op, dist_dtype dtype);

/*
 * Issues the call on its stream. Returns HCCL's result; *what_p is the name of the called function.
 */
int hccl_issue(struct hccl_group *g, struct hccl_call *c, const char **what_p);

/* ---- hccl_pair.c: sends and receives, through the host ---- */

struct hccl_state {
    const struct dist_host *host;
    struct hccl_group *group;
    struct dist_engine *engine;
    struct hccl_call *calls; /* oldest first */
    struct hccl_pair *pairs;
    bool is_stopping; /* the thread has been requested to end */
    bool thread_lost; /* the thread did not end */
};

dist_status hccl_pair_post(struct hccl_state *s, const struct dist_call *call,
                           struct dist_ticket *ticket);
int hccl_pair_progress(struct hccl_state *s);
void hccl_pair_drop(struct hccl_state *s);

/* ---- hccl_open.c ---- */

dist_status hccl_open(void *state, const struct dist_backend_config *config);

#endif
