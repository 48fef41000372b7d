/* SPDX-License-Identifier: BSD-3-Clause */
/* A stand-in for GPUs: CUDA's (or HIP's) driver and NCCL (RCCL) on the memory of the host. */
#ifndef TESTS_STANDIN_STANDIN_H
#define TESTS_STANDIN_STANDIN_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * standin_cuda.so and standin_hip.so have the ABI of the calls that libdist uses, so that what
 * drives GPUs can be tested where there is none:
 *
 *     DIST_GPU_DRIVER=.libs/standin_cuda.so DIST_NCCL_LIBRARY=.libs/standin_cuda.so program
 *
 * Modelled:
 * - Devices with memory of their own. The address that is handed out cannot be read or written by
 *   the host; the stand-in works on a second mapping. Pinned host memory is known as such.
 * - Streams as queues, each with a thread; events; the waiting of streams for each other; the
 *   default stream, which waits for all blocking streams of its device and they for it.
 *   Copies from and to memory that is not pinned behave as CUDA's: the first takes the data before
 *   it returns, the other returns when they are there.
 * - Contexts: each thread has a stack of them, and without one most calls are refused (with HIP a
 *   thread starts on device 0).
 * - Capture in its three modes with what is forbidden meanwhile, forks and joins by events. A graph
 *   is launched as the list of what was captured, in that order, on one stream.
 * - NCCL: see communicator.h.
 * - The calls of CUDA's runtime that programs of the tests use, in runtime.c.
 * Not modelled: time (except the delay), kernels, textures, peer access, IPC, memory pools, any
 * arithmetic of a GPU. A released context keeps its memory.
 *
 * Environment:
 *   STANDIN_DEVICES=8       so many devices; CUDA_VISIBLE_DEVICES chooses (HIP_VISIBLE_DEVICES)
 *   STANDIN_DELAY_US=0      each operation on a stream takes this much longer
 *   STANDIN_GUARD=1         0: the host may touch device memory
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

/* The head of a call of the driver: its two names, its parameters. It returns an error number. */
#define DRIVER(cuda, hip, ...)                                                                     \
    STANDIN_API int STANDIN_NAME(cuda, hip)(__VA_ARGS__);                                          \
    int STANDIN_NAME(cuda, hip)(__VA_ARGS__)

/* Errors of the driver. X(number, text): the numbers are CUDA's, HIP has the same. */
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

/* ---- one lock for all states; whoever changes one tells those who wait ---- */
void standin_lock(void);
void standin_unlock(void);
void standin_wait(void); /* with the lock: until something has changed */
void standin_changed(void);
/* As standin_wait, on something else. */
void standin_wait_on(pthread_cond_t *change);
/* With the lock: those that may go on. */
void standin_streams_wake(void);

/* A number from the environment, or its default. */
long standin_number(const char *name, long fallback);
void standin_sleep_us(long us);

/* ---- devices and contexts, driver.c ---- */
int standin_devices(void);                /* how many this process sees */
int standin_device_physical(int ordinal); /* its number among those of the machine */
int standin_current(int *device_p);       /* this thread's; INVALID_CONTEXT: none */
void *standin_context(int device);        /* its primary context */
void standin_device_set(int device);      /* the runtime's way: replaces the current context */
const char *standin_error_text(int error);

/* ---- memory, driver_memory.c ---- */
enum standin_memory_kind { MEMORY_OF_DEVICE, MEMORY_PINNED, MEMORY_MANAGED };

struct standin_memory {
    struct standin_memory *next;
    unsigned char *address; /* as handed out */
    unsigned char *alias;   /* where the stand-in reads and writes */
    size_t bytes;           /* as asked for */
    size_t mapped;
    int device;
    uint64_t id;
    enum standin_memory_kind kind;
    bool mapped_only; /* of a device, and of no context */
};

int standin_memory_new(enum standin_memory_kind kind, int device, size_t bytes, void **address_p);
int standin_memory_drop(const void *address, bool of_device);
/* It is as what is mapped by cuMemMap from now on, or comes from a pool. */
void standin_memory_unbind(const void *address);
/* What this address belongs to; false: nothing of ours. */
bool standin_memory_find(const void *address, struct standin_memory *memory_p);
/* Where to read and write these bytes; NULL: they are not all in memory that a device reaches. */
STANDIN_API unsigned char *standin_alias(const void *address, size_t bytes);

/* ---- streams, driver_stream.c ---- */

/*
 * What a stream does. run is called by its thread without the lock, with what start returned; start
 * (optional) with the lock, when the task is put on a stream, each time again for one in a graph.
 * free (optional) after the last of its users.
 */
struct standin_task {
    void (*run)(struct standin_task *task, uint64_t turn);
    uint64_t (*start)(struct standin_task *task);
    void (*free)(struct standin_task *task);
    int users;
};

/* A place in a stream: behind its first `count` operations. Stream NULL: nowhere. Holds a use. */
struct standin_place {
    struct standin_stream *stream;
    uint64_t count;
};

/* Which of a capture's operations come before a point in it: at[i] of operation i. */
struct standin_past {
    unsigned char *at;
    size_t count;
};

/* An operation in a queue: a task, or the waiting for a place. */
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
    int users;           /* its handle, its thread, places */
    pthread_cond_t wake; /* its thread sleeps on it */
    struct standin_operation *first, **last;
    uint64_t count, done;          /* operations that were put in, that were done */
    struct standin_graph *capture; /* NULL: not capturing */
    struct standin_past past;      /* of what it captures next */
};

/* Puts a task on a stream, or into the graph that it captures; takes over one use of it. */
int standin_enqueue(void *stream, int device, struct standin_task *task);
/* Without the lock: until it is empty. */
int standin_stream_sync(struct standin_stream *stream);
int standin_device_sync(int device);
/* With the lock. A handle of 0 is the default stream of that device; -1: the current one. */
int standin_stream_find(void *handle, int device, struct standin_stream **stream_p);
extern struct standin_stream *standin_streams;
void standin_stream_put(struct standin_stream *stream, struct standin_task *task);
void standin_stream_await(struct standin_stream *stream, struct standin_place place);
struct standin_place standin_place_of_end(struct standin_stream *stream);
void standin_place_drop(struct standin_place *place);
void standin_task_drop(struct standin_task *task);

/* ---- capture, driver_capture.c; with the lock ---- */

/* May this thread do what could disturb a capture? If not, the captures concerned are void. */
int standin_capture_unsafe(void);
/* As above for a stream that captures: it may not be waited for. Returns the error. */
int standin_capture_spoil(struct standin_stream *stream);
/* Is a blocking stream of this device capturing, so that its default stream may not be used? */
int standin_capture_implicit(int device);
int standin_capture_add(struct standin_stream *stream, struct standin_task *task);
/* Where an event stands that was recorded in a capture; id 0: in none. */
struct standin_mark {
    uint64_t capture;
    struct standin_past past;
};
void standin_capture_mark(struct standin_stream *stream, struct standin_mark *mark_p);
void standin_capture_mark_clear(struct standin_mark *mark);
/* A stream waits for an event recorded in a capture: it joins that. */
int standin_capture_join(struct standin_stream *stream, const struct standin_mark *mark);

/* ---- events, driver_event.c; with the lock ---- */
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

/* Is this fault asked for, on this rank? Its number goes to *number_p (may be NULL). */
bool standin_fault(enum standin_fault fault, int rank, long *number_p);

#endif
