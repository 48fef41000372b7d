/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The GPU driver, CUDA's or HIP's, loaded at run time: building needs no header or library of
 * theirs.
 */
#ifndef DISTI_DEVICE_DRIVER_H
#define DISTI_DEVICE_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The functions that libdist uses. X(member, CUDA's symbol, HIP's symbol, parameters). All return 0
 * or an error number. Contexts, streams and events are handles; device memory is an address. See
 * the CUDA Driver API (https://docs.nvidia.com/cuda/cuda-driver-api); HIP's is similar.
 */
#define DISTI_DRIVER_CALLS(X)                                                                      \
    X(init, "cuInit", "hipInit", (unsigned flags))                                                 \
    X(version, "cuDriverGetVersion", "hipDriverGetVersion", (int *version))                        \
    X(device_count, "cuDeviceGetCount", "hipGetDeviceCount", (int *count))                         \
    X(device_get, "cuDeviceGet", "hipDeviceGet", (int *device, int ordinal))                       \
    X(device_bus, "cuDeviceGetPCIBusId", "hipDeviceGetPCIBusId", (char *text, int size, int dev))  \
    X(context_retain, "cuDevicePrimaryCtxRetain", "hipDevicePrimaryCtxRetain",                     \
      (void **context, int device))                                                                \
    X(context_release, "cuDevicePrimaryCtxRelease_v2", "hipDevicePrimaryCtxRelease", (int device)) \
    X(context_push, "cuCtxPushCurrent_v2", "hipCtxPushCurrent", (void *context))                   \
    X(context_pop, "cuCtxPopCurrent_v2", "hipCtxPopCurrent", (void **context))                     \
    X(pointer_attributes, "cuPointerGetAttributes", "hipDrvPointerGetAttributes",                  \
      (unsigned count, int *attributes, void **data, uintptr_t pointer))                           \
    X(memory_alloc, "cuMemAlloc_v2", "hipMalloc", (uintptr_t * memory, size_t bytes))              \
    X(memory_free, "cuMemFree_v2", "hipFree", (uintptr_t memory))                                  \
    X(host_alloc, "cuMemHostAlloc", "hipHostMalloc",                                               \
      (void **memory, size_t bytes, unsigned flags))                                               \
    X(host_free, "cuMemFreeHost", "hipHostFree", (void *memory))                                   \
    X(copy_in, "cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync",                                       \
      (uintptr_t to, const void *from, size_t bytes, void *stream))                                \
    X(copy_out, "cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync",                                      \
      (void *to, uintptr_t from, size_t bytes, void *stream))                                      \
    X(copy_within, "cuMemcpyDtoDAsync_v2", "hipMemcpyDtoDAsync",                                   \
      (uintptr_t to, uintptr_t from, size_t bytes, void *stream))                                  \
    X(fill, "cuMemsetD8Async", "hipMemsetD8Async",                                                 \
      (uintptr_t to, unsigned char value, size_t bytes, void *stream))                             \
    X(stream_create, "cuStreamCreate", "hipStreamCreateWithFlags",                                 \
      (void **stream, unsigned flags))                                                             \
    X(stream_destroy, "cuStreamDestroy_v2", "hipStreamDestroy", (void *stream))                    \
    X(stream_wait, "cuStreamWaitEvent", "hipStreamWaitEvent",                                      \
      (void *stream, void *event, unsigned flags))                                                 \
    X(stream_synchronize, "cuStreamSynchronize", "hipStreamSynchronize", (void *stream))           \
    X(stream_capturing, "cuStreamIsCapturing", "hipStreamIsCapturing", (void *stream, int *is))    \
    X(event_create, "cuEventCreate", "hipEventCreateWithFlags", (void **event, unsigned flags))    \
    X(event_destroy, "cuEventDestroy_v2", "hipEventDestroy", (void *event))                        \
    X(event_record, "cuEventRecord", "hipEventRecord", (void *event, void *stream))                \
    X(event_query, "cuEventQuery", "hipEventQuery", (void *event))                                 \
    X(capture_mode, "cuThreadExchangeStreamCaptureMode", "hipThreadExchangeStreamCaptureMode",     \
      (int *mode))                                                                                 \
    X(error_text, "cuGetErrorString", "hipDrvGetErrorString", (int error, const char **text))

struct disti_driver {
#define DISTI_DRIVER_MEMBER(member, cuda, hip, parameters) int(*member) parameters;
    DISTI_DRIVER_CALLS(DISTI_DRIVER_MEMBER)
#undef DISTI_DRIVER_MEMBER
    const char *name; /* "CUDA" or "HIP" */
    char file[256];   /* the library's name or path */
};

/* Constants of the APIs. */
#define DISTI_DRIVER_NO_CONTEXT 201        /* error: the thread has no context */
#define DISTI_DRIVER_NOT_READY 600         /* event_query: not complete */
#define DISTI_DRIVER_STREAM_NON_BLOCKING 1 /* stream_create */
#define DISTI_DRIVER_EVENT_NO_TIMING 2     /* event_create */
#define DISTI_DRIVER_HOST_PORTABLE 1       /* host_alloc: pinned for every context */
#define DISTI_DRIVER_CAPTURE_RELAXED 2     /* capture_mode */

/*
 * Loads and initialises the driver once per process: DIST_GPU_DRIVER (a file), else CUDA's, else
 * HIP's. NULL: no working driver; writes the reason and the fix to reason[reason_size]. The first
 * call may take a second. Any thread. Do not call it before a fork whose child uses the device.
 */
const struct disti_driver *disti_driver_load(char *reason, size_t reason_size);

/*
 * Returns the driver if this process has loaded it, in any way; else NULL. Cheap, in particular on
 * machines without GPU. Any thread.
 */
const struct disti_driver *disti_driver_loaded(void);

/* True if this machine may have a GPU. The result is the same in all calls. Any thread. */
bool disti_driver_possible(void);

/* True if the address is device memory or managed memory. */
bool disti_driver_owns(const struct disti_driver *driver, const void *address);

/* Returns the text of an error number; never NULL. */
const char *disti_driver_text(const struct disti_driver *driver, int error);

/*
 * Makes the context of this memory current in this thread until disti_driver_exit, since the
 * library's own threads have no current context. Not nested. Driver calls in between do not
 * invalidate the capture of another stream. False: the memory has no context.
 */
bool disti_driver_enter(const struct disti_driver *driver, const void *address);
void disti_driver_exit(const struct disti_driver *driver);

#endif
