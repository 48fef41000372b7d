/* SPDX-License-Identifier: BSD-3-Clause */
/* A stand-in for GPUs: the driver of CUDA (or HIP) and NCCL (RCCL), on host memory. */
#ifndef TESTS_STANDIN_STANDIN_H
#define TESTS_STANDIN_STANDIN_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * standin_cuda.so and standin_hip.so have the ABI of the functions that libdist uses, so that code
 * for GPUs can be tested without one:
 *
 *     DIST_GPU_DRIVER=.libs/standin_cuda.so DIST_NCCL_LIBRARY=.libs/standin_cuda.so program
 *
 * Modelled:
 * - Devices with memory of their own. The host cannot read or write the returned address; the
 *   stand-in uses a second mapping. Pinned host memory is recognized.
 * - Streams as queues with a thread each; events; waits between streams; the default stream, which
 *   waits for all blocking streams of its device, as they wait for it. Copies from and to pageable
 *   memory behave as CUDA's: the former reads the data before it returns, the latter returns when
 *   the data have arrived.
 * - Contexts: each thread has a stack of them, and without one most functions fail (with HIP a
 *   thread starts on device 0).
 * - Capture in its three modes with the functions forbidden meanwhile, forks and joins by events. A
 *   graph is launched as a list of the captured operations, in that order, on one stream.
 * - NCCL: see communicator.h.
 * - The functions of CUDA's runtime that the test programs use, in runtime.c.
 * Not modelled: time (except the delay), kernels, textures, peer access, IPC, memory pools, any
 * arithmetic of a GPU. A released context keeps its memory.
 *
 * Environment:
 *   STANDIN_DEVICES=8       number of devices; CUDA_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES apply
 *   STANDIN_DELAY_US=0      additional microseconds for each operation on a stream
 *   STANDIN_GUARD=1         0: the host may access device memory
 *   STANDIN_FAULT=...       see fault.c
 */

#define STANDIN_API __attribute__((visibility("default")))

#ifdef STANDIN_HIP
#define STANDIN_NAME(cuda, hip) hip
#define STANDIN_IS_HIP true
#else
#define STANDIN_NAME(cuda, hip) cuda
#define STANDIN_IS_HIP false
#endif

/* Declares and begins the definition of a driver function with its two names. It returns an error
 * code. */
#define DRIVER(cuda, hip, ...)                                                                     \
    STANDIN_API int STANDIN_NAME(cuda, hip)(__VA_ARGS__);                                          \
    int STANDIN_NAME(cuda, hip)(__VA_ARGS__)

/* Error codes of the driver. X(number, text): the numbers are CUDA's, HIP has the same. */
#define STANDIN_ERRORS(X)                                                                          \
    X(OK, 0, "no error")                                                                           \
    X(INVALID_VALUE, 1, "invalid argument")                                                        \
    X(OUT_OF_MEMORY, 2, "out of memory")                                                           \
    X(NOT_INITIALIZED, 3, "initialization error")                                                  \
    X(NO_DEVICE, 100, "no CUDA-capable device is detected")                                        \
    X(INVALID_DEVICE, 101, "invalid device ordinal")                                               \
    X(INVALID_CONTEXT, 201, "invalid device context")                                              \
    X(ILLEGAL_STATE, 401, "the operation cannot be performed in the present state")                \
    X(INVALID_HANDLE, 400, "invalid resource handle")                                              \
    X(NOT_READY, 600, "device not ready")                                                          \
    X(ILLEGAL_ADDRESS, 700, "an illegal memory access was encountered")                            \
    X(CAPTURE_UNSUPPORTED, 900, "operation not permitted when stream is capturing")                \
    X(CAPTURE_INVALIDATED, 901, "operation failed due to a previous error during capture")         \
    X(CAPTURE_UNMATCHED, 903, "capture was not initiated in this stream")                          \
    X(CAPTURE_UNJOINED, 904, "capturing stream has unjoined work")                                 \
    X(CAPTURE_ISOLATION, 905, "dependency created on uncaptured work in another stream")           \
    X(CAPTURE_IMPLICIT, 906,                                                                       \
      "operation would make the legacy stream depend on a capturing blocking stream")              \
    X(CAPTURED_EVENT, 907,                                                                         \
      "operation not permitted on an event last recorded in a capturing stream")                   \
    X(CAPTURE_WRONG_THREAD, 908,                                                                   \
      "attempt to terminate a thread-local capture sequence from "                                 \
      "another thread")

enum {
#define STANDIN_ERROR(name, number, text) ERROR_##name = number,
    STANDIN_ERRORS(STANDIN_ERROR)
#undef STANDIN_ERROR
};

#define STANDIN_DEVICES_MAX 64

/* ---- one lock for all state; a change wakes the waiting threads ---- */
void standin_lock(void);
void standin_unlock(void);
void standin_wait(void); /* caller holds the lock; returns after a change */
void standin_changed(void);
/* As standin_wait, on another condition variable. */
void standin_wait_on(pthread_cond_t *change);
/* Wakes the streams that can continue. Caller holds the lock. */
void standin_streams_wake(void);

/* Returns a number from the environment, or its default. */
long standin_number(const char *name, long fallback);
void standin_sleep_us(long us);

/* ---- devices and contexts, driver.c ---- */
int standin_devices(void);                /* number of visible devices */
int standin_device_physical(int ordinal); /* its number among the machine's devices */
int standin_current(int *device_p);       /* this thread's device; INVALID_CONTEXT: none */
void *standin_context(int device);        /* returns its primary context */
void standin_device_set(int device);      /* replaces the current context, as the runtime does */
const char *standin_error_text(int error);

/* ---- memory, driver_memory.c ---- */
enum standin_memory_kind { MEMORY_OF_DEVICE, MEMORY_PINNED, MEMORY_MANAGED };

struct standin_memory {
    struct standin_memory *next;
    unsigned char *address; /* the address that the program gets */
    unsigned char *alias;   /* the address that the stand-in accesses */
    size_t bytes;           /* as requested */
    size_t mapped;
    int device;
    uint64_t id;
    enum standin_memory_kind kind;
    bool mapped_only; /* belongs to no context, as memory that is mapped by cuMemMap */
};

int standin_memory_new(enum standin_memory_kind kind, int device, size_t bytes, void **address_p);
int standin_memory_drop(const void *address, bool of_device);
/* Makes the memory appear as if it were mapped by cuMemMap or allocated from a pool. */
void standin_memory_unbind(const void *address);
/* Finds the memory that contains the address. Returns false if it is not the stand-in's. */
bool standin_memory_find(const void *address, struct standin_memory *memory_p);
/* Returns the accessible address of these bytes, or NULL if a device cannot access all of them. */
STANDIN_API unsigned char *standin_alias(const void *address, size_t bytes);

/* ---- streams, driver_stream.c ---- */

/*
 * A task of a stream. The stream's thread calls run without the lock, with the value that start
 * returned. start (optional) is called with the lock when the task is enqueued, which for a task in
 * a graph is in every launch. free (optional) is called after the last reference is dropped.
 */
struct standin_task {
    void (*run)(struct standin_task *task, uint64_t turn);
    uint64_t (*start)(struct standin_task *task);
    void (*free)(struct standin_task *task);
    int users;
};

/*
 * A position in a stream: after its first `count` operations. Holds a reference to the stream. If
 * stream is NULL, there is no position.
 */
struct standin_place {
    struct standin_stream *stream;
    uint64_t count;
};

/* The operations of a capture that precede a point in it: at[i] is 1 if operation i does. */
struct standin_past {
    unsigned char *at;
    size_t count;
};

/* An operation in a queue: a task, or a wait for a position. */
struct standin_operation {
    struct standin_operation *next;
    struct standin_task *task;
    uint64_t turn;
    struct standin_place place;
};

struct standin_stream {
    struct standin_stream *next;
    int device;
    bool blocking; /* it and the device's default stream wait for each other */
    bool is_default, closing;
    int users;           /* references: its handle, its thread, positions */
    pthread_cond_t wake; /* its thread sleeps on it */
    struct standin_operation *first, **last;
    uint64_t count, done;          /* numbers of enqueued and of completed operations */
    struct standin_graph *capture; /* NULL if it is not capturing */
    struct standin_past past;      /* predecessors of the next operation to capture */
};

/* Enqueues a task on a stream, or adds it to the graph being captured; takes over one reference. */
int standin_enqueue(void *stream, int device, struct standin_task *task);
/* Waits until the stream is empty. Caller does not hold the lock. */
int standin_stream_sync(struct standin_stream *stream);
int standin_device_sync(int device);
/* Finds a stream; handle 0 is the default stream of that device (-1: of the current one). Caller
 * holds the lock. */
int standin_stream_find(void *handle, int device, struct standin_stream **stream_p);
extern struct standin_stream *standin_streams;
void standin_stream_put(struct standin_stream *stream, struct standin_task *task);
void standin_stream_await(struct standin_stream *stream, struct standin_place place);
struct standin_place standin_place_of_end(struct standin_stream *stream);
void standin_place_drop(struct standin_place *place);
void standin_task_drop(struct standin_task *task);

/* ---- capture, driver_capture.c; caller holds the lock ---- */

/* Returns an error, and invalidates the captures concerned, if this thread may not make a call that
 * could disturb a capture. */
int standin_capture_unsafe(void);
/* Invalidates the capture of a stream that a call would wait for. Returns the error. */
int standin_capture_spoil(struct standin_stream *stream);
/*
 * True if a blocking stream of this device is capturing. The device's default stream must then not
 * be used.
 */
int standin_capture_implicit(int device);
int standin_capture_add(struct standin_stream *stream, struct standin_task *task);
/*
 * The position of an event that was recorded in a capture. `capture` is the id of the capture; 0:
 * none.
 */
struct standin_mark {
    uint64_t capture;
    struct standin_past past;
};
void standin_capture_mark(struct standin_stream *stream, struct standin_mark *mark_p);
void standin_capture_mark_clear(struct standin_mark *mark);
/*
 * Adds a stream to the capture in which an event was recorded, because the stream waits for the
 * event.
 */
int standin_capture_join(struct standin_stream *stream, const struct standin_mark *mark);

/* ---- events, driver_event.c; caller holds the lock ---- */
struct standin_event;
struct standin_event *standin_event_new(void);
void standin_event_free(struct standin_event *event);
int standin_event_record(struct standin_event *event, struct standin_stream *stream);
int standin_event_await(struct standin_event *event, struct standin_stream *stream);

/* ---- faults, fault.c ---- */
enum standin_fault {
    FAULT_VERSION,
    FAULT_INIT,
    FAULT_INIT_HANG,
    FAULT_ASYNC,
    FAULT_HANG,
    FAULT_ENQUEUE,
    FAULT_ABORT_SLOW,
    FAULT_MEMORY,
    FAULT_COUNT
};

/*
 * True if STANDIN_FAULT selects this fault on this rank. Stores its NUMBER in *number_p, which may
 * be NULL.
 */
bool standin_fault(enum standin_fault fault, int rank, long *number_p);

#endif
