/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend hccl, inside: a group, its calls, and what the files give each other. */
#ifndef PLUGIN_HCCL_H
#define PLUGIN_HCCL_H

#include "hccl_abi.h"

#include <dist/backend.h>
#include <pthread.h>
#include <stdatomic.h>

/* Events that streams may still wait for, before the oldest is given up. */
#define HCCL_RETIRED 256

/* How long close and abort wait for HCCL before they leave it alone. */
#define HCCL_LEAVE_MS 2000

struct hccl_group;

/*
 * What the group's thread does, one after the other:
 *
 *     QUEUED ---> ISSUED ---> DONE          ISSUED: it is on its stream, with the event behind it
 *        \___________\____--> FAILED        status and text say why
 */
enum hccl_stage { HCCL_QUEUED, HCCL_ISSUED, HCCL_DONE, HCCL_FAILED };

struct hccl_job {
    struct hccl_job *next; /* in the queue */
    void (*run)(struct hccl_group *g, struct hccl_job *job);
    atomic_int stage;
    dist_status status;
    char text[512];
};

/* Memory of the device that is used again and again. */
struct hccl_region {
    struct hccl_region *next;
    void *memory;
    size_t bytes;
};

/* Blocks of a buffer, in elements: block i is counts[i] at offsets[i]; counts NULL: one, from 0. */
struct hccl_blocks {
    size_t blocks;
    size_t count;
    const size_t *counts, *offsets;
};

/* One of a call's two buffers. */
struct hccl_side {
    char *user;
    struct hccl_blocks blocks;
    size_t bytes;   /* from its beginning to the end of the last block */
    bool on_host;   /* it has to be copied */
    bool on_device; /* neither: it is of nothing */
    char *device;   /* where HCCL finds it: user, or the region */
    struct hccl_region *region;
};

/* A collective, from its post to its end. */
struct hccl_call {
    struct hccl_job job;
    struct hccl_call *next; /* in the group's list, by the owner of the lock of the core */
    struct dist_call call;
    struct dist_ticket *ticket;
    struct hccl_side in, out;
    struct hccl_region *spare; /* for results that nobody wants */
    void *arrays;              /* what HCCL reads while it works */
    void *stream, *end;        /* where it is, and the event behind it */
    bool streams;              /* manner STREAM */
    struct hccl_call *later;   /* in the thread's list of issued calls */
};

/* A send or receive on memory of the device, by a copy. */
struct hccl_pair {
    struct hccl_pair *next;
    struct dist_call call; /* on the copy */
    struct dist_ticket ticket, *users;
    void *user;
    char *copy;
    size_t bytes;
};

/*
 * Outlives the core's state if HCCL does not come back: then its thread keeps it for ever. All
 * calls of HCCL are made by that thread, since they may block (the first ones connect the ranks).
 */
struct hccl_group {
    const struct hccl_api *api;
    const struct dist_host *host;
    int rank, ranks, device, timeout_ms;
    void *context;      /* of the device; set by the thread at its start */
    void *_Atomic comm; /* NULL: none, or somebody is destroying it */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct hccl_job *first, **last; /* the queue */
    bool stop;                      /* the thread shall end */
    bool ended;                     /* it has */

    /* The thread's own. */
    void *stream; /* of calls beside the program's stream */
    struct hccl_call *issued, **issued_end;
    struct hccl_call *newest; /* the last that was issued, until it has ended */
    struct hccl_region *regions;
    void *retired[HCCL_RETIRED];
    unsigned retirements;
    int64_t look_ns; /* when HCCL is asked for errors again */
};

/* ---- hccl_library.c ---- */

/* The libraries, loaded once a process. NULL: writes why, and what to do. */
const struct hccl_api *hccl_load(char *reason, size_t reason_size);

/* Writes "text (number N): what CANN said last" for an error of HCCL, or of the runtime. */
void hccl_explain(const struct hccl_api *api, bool runtime, int error, char *text, size_t size);

/* ---- hccl_shape.c: which memory a call reads and writes ---- */

void hccl_shape(const struct dist_call *call, int rank, int ranks, struct hccl_blocks *in_p,
                struct hccl_blocks *out_p);
/* Elements from the beginning to the end of the last block. */
size_t hccl_extent(const struct hccl_blocks *blocks);
/* Block i: its offset and count, in elements. */
void hccl_block(const struct hccl_blocks *blocks, size_t i, size_t *offset_p, size_t *count_p);
/* Is nothing to be moved, as every rank knows? */
bool hccl_is_empty(const struct dist_call *call);

/* ---- hccl_memory.c ---- */

/* Is that memory of the device? See README.md for the rule. Any thread. */
bool hccl_is_device(const struct hccl_group *g, const void *memory);

/* This thread has the group's context until hccl_leave(previous). False: it cannot. */
bool hccl_enter(const struct hccl_group *g, void **previous_p);
void hccl_leave(const struct hccl_group *g, void *previous);

void *hccl_alloc(void *state, size_t bytes);
void hccl_free(void *state, void *memory);

/* The thread's: memory of the device for a while; NULL: there is none. */
struct hccl_region *hccl_region_take(struct hccl_group *g, size_t bytes);
void hccl_region_give(struct hccl_group *g, struct hccl_region *region);

/* ---- hccl_worker.c: the group's thread ---- */

/* Starts it. The job is the first, and the caller waits for it as hccl_await says. */
dist_status hccl_start(struct hccl_group *g);
void hccl_enqueue(struct hccl_group *g, struct hccl_job *job);
/* Waits, at most the group's timeout, until it is at that stage. Failed: says why. */
dist_status hccl_await(struct hccl_group *g, struct hccl_job *job, enum hccl_stage stage);
/* The thread, in a job: it goes no further. */
void hccl_job_fail(struct hccl_job *job, dist_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void hccl_job_reach(struct hccl_group *g, struct hccl_job *job, enum hccl_stage stage);
bool hccl_stopped(struct hccl_group *g);
/* Ends it. True: it has ended, g is the caller's to free; false: g is lost. Bounded. */
bool hccl_end(struct hccl_group *g);
int64_t hccl_now_ns(void);

/* ---- hccl_call.c: the thread's way with a collective ---- */

void hccl_call_run(struct hccl_group *g, struct hccl_job *job);
/* Looks at what is on the streams. True: something has ended. */
bool hccl_call_look(struct hccl_group *g);
/* Gives back what an ended call has of the device's. */
void hccl_call_clear(struct hccl_group *g, struct hccl_call *c);
/* An event behind what is on the stream now; NULL: it failed, *error_p says with what. */
void *hccl_event(struct hccl_group *g, void *stream, int *error_p);
void hccl_retire(struct hccl_group *g, void *event);

/* ---- hccl_issue.c ---- */

/* HCCL's numbers; HCCL_TYPE_NONE, HCCL_OP_NONE: it has none that dist.h's rules allow. */
int hccl_dtype(dist_dtype dtype);
int hccl_op(dist_op op, dist_dtype dtype);

/* Puts it on its stream. Returns HCCL's result; what was called goes to *what_p. */
int hccl_issue(struct hccl_group *g, struct hccl_call *c, const char **what_p);

/* ---- hccl_pair.c: sends and receives, over the host ---- */

struct hccl_state {
    const struct dist_host *host;
    struct hccl_group *group;
    struct dist_engine *engine;
    struct hccl_call *calls; /* oldest first */
    struct hccl_pair *pairs;
    bool left; /* the thread was told to end */
    bool lost; /* and did not */
};

/* ---- hccl_open.c ---- */

dist_status hccl_open(void *state, const struct dist_backend_config *config);

dist_status hccl_pair_post(struct hccl_state *s, const struct dist_call *call,
                           struct dist_ticket *ticket);
int hccl_pair_progress(struct hccl_state *s);
void hccl_pair_drop(struct hccl_state *s);

#endif
