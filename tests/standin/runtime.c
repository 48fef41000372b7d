/* SPDX-License-Identifier: BSD-3-Clause */
/* A part of CUDA's runtime, over the stand-in's driver: a thread without a context uses device 0.
 */
#include "standin.h"

#include <pthread.h>

/* The driver's functions used here; they are defined in driver*.c. */
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuMemAlloc_v2(uintptr_t *memory, size_t bytes);
int cuMemFree_v2(uintptr_t memory);
int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags);
int cuMemFreeHost(void *memory);
int cuMemcpyAsync(uintptr_t to, uintptr_t from, size_t bytes, void *stream);
int cuMemsetD8Async(uintptr_t to, unsigned char value, size_t bytes, void *stream);
int cuStreamCreate(void **stream, unsigned flags);
int cuStreamDestroy_v2(void *stream);
int cuStreamQuery(void *stream);
int cuStreamSynchronize(void *stream);
int cuStreamWaitEvent(void *stream, void *event, unsigned flags);
int cuEventCreate(void **event, unsigned flags);
int cuEventDestroy_v2(void *event);
int cuEventRecord(void *event, void *stream);
int cuEventQuery(void *event);
int cuEventSynchronize(void *event);
int cuLaunchHostFunc(void *stream, void (*run)(void *arg), void *arg);
int cuDriverGetVersion(int *version);

#define RUNTIME(name, ...)                                                                         \
    STANDIN_API int name(__VA_ARGS__);                                                             \
    int name(__VA_ARGS__)

/* Memory types of cudaPointerGetAttributes. */
enum { TYPE_UNREGISTERED, TYPE_HOST, TYPE_DEVICE, TYPE_MANAGED };
struct cudaPointerAttributes {
    int type, device;
    void *devicePointer, *hostPointer;
    long reserved[8];
};

/* Kinds of copies; the default derives the direction from the addresses. */
enum { COPY_TO_HOST = 2, COPY_DEFAULT = 4 };

static _Thread_local int runtime_error;

static int runtime_note(int error)
{
    if (error && error != ERROR_NOT_READY)
        runtime_error = error;
    return error;
}

static void runtime_start(void)
{
    void *context;

    if (cuInit(0))
        return;
    for (int device = 0; device < standin_devices(); device++)
        cuDevicePrimaryCtxRetain(&context, device);
}

/* Called first in every function: initializes the driver and gives this thread a device. */
static int runtime_enter(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int device;

    pthread_once(&once, runtime_start);
    if (standin_devices() == 0)
        return ERROR_NO_DEVICE;
    if (standin_current(&device))
        standin_device_set(0);
    return ERROR_OK;
}

/* The body of most functions: enter, call the driver, record the error. */
#define RUNTIME_CALL(call)                                                                         \
    do {                                                                                           \
        int entered = runtime_enter();                                                             \
        return runtime_note(entered ? entered : (call));                                           \
    } while (0)

/* ---- errors and devices ---- */

STANDIN_API const char *cudaGetErrorString(int error);
const char *cudaGetErrorString(int error)
{
    const char *text = standin_error_text(error);

    return text ? text : "unrecognized error code";
}

RUNTIME(cudaPeekAtLastError, void)
{
    return runtime_error;
}

RUNTIME(cudaGetLastError, void)
{
    int error = runtime_error;

    runtime_error = ERROR_OK;
    return error;
}

RUNTIME(cudaDriverGetVersion, int *version)
{
    return runtime_note(cuDriverGetVersion(version));
}

RUNTIME(cudaRuntimeGetVersion, int *version)
{
    return runtime_note(cuDriverGetVersion(version));
}

RUNTIME(cudaGetDeviceCount, int *count)
{
    *count = 0;
    RUNTIME_CALL((*count = standin_devices(), ERROR_OK));
}

static int runtime_set_device(int device)
{
    if (device < 0 || device >= standin_devices())
        return ERROR_INVALID_DEVICE;
    standin_device_set(device);
    return ERROR_OK;
}

RUNTIME(cudaSetDevice, int device)
{
    RUNTIME_CALL(runtime_set_device(device));
}

RUNTIME(cudaGetDevice, int *device)
{
    RUNTIME_CALL(standin_current(device));
}

static int runtime_synchronize(void)
{
    int device, error = standin_current(&device);

    return error ? error : standin_device_sync(device);
}

RUNTIME(cudaDeviceSynchronize, void)
{
    RUNTIME_CALL(runtime_synchronize());
}

/* ---- memory ---- */

RUNTIME(cudaMalloc, void **memory, size_t bytes)
{
    *memory = NULL;
    RUNTIME_CALL(bytes ? cuMemAlloc_v2((uintptr_t *)memory, bytes) : ERROR_OK);
}

RUNTIME(cudaFree, void *memory)
{
    RUNTIME_CALL(cuMemFree_v2((uintptr_t)memory));
}

RUNTIME(cudaHostAlloc, void **memory, size_t bytes, unsigned flags)
{
    RUNTIME_CALL(cuMemHostAlloc(memory, bytes, flags));
}

RUNTIME(cudaMallocHost, void **memory, size_t bytes)
{
    RUNTIME_CALL(cuMemHostAlloc(memory, bytes, 0));
}

RUNTIME(cudaFreeHost, void *memory)
{
    RUNTIME_CALL(cuMemFreeHost(memory));
}

static int runtime_attributes(struct cudaPointerAttributes *attributes, void *pointer)
{
    static const int types[] = {[MEMORY_OF_DEVICE] = TYPE_DEVICE,
                                [MEMORY_PINNED] = TYPE_HOST,
                                [MEMORY_MANAGED] = TYPE_MANAGED};
    struct standin_memory memory;

    *attributes = (struct cudaPointerAttributes){
        .type = TYPE_UNREGISTERED, .device = -2, .hostPointer = pointer};
    if (standin_memory_find(pointer, &memory)) {
        attributes->type = types[memory.kind];
        attributes->device = memory.device;
        attributes->devicePointer = pointer;
        attributes->hostPointer = memory.kind == MEMORY_OF_DEVICE ? NULL : pointer;
    }
    return ERROR_OK;
}

RUNTIME(cudaPointerGetAttributes, struct cudaPointerAttributes *attributes, const void *pointer)
{
    RUNTIME_CALL(runtime_attributes(attributes, (void *)pointer));
}

/* A direction that contradicts the addresses is an error, as on a GPU. */
static int runtime_copy(void *to, const void *from, size_t bytes, int kind, void *stream)
{
    struct standin_memory memory;
    bool to_device = standin_memory_find(to, &memory) && memory.kind != MEMORY_PINNED;
    bool from_device = standin_memory_find(from, &memory) && memory.kind != MEMORY_PINNED;

    if (kind < 0 || kind > COPY_DEFAULT)
        return ERROR_INVALID_VALUE;
    if (bytes && kind != COPY_DEFAULT && kind != to_device + from_device * COPY_TO_HOST)
        return ERROR_INVALID_VALUE;
    return cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, bytes, stream);
}

RUNTIME(cudaMemcpyAsync, void *to, const void *from, size_t bytes, int kind, void *stream)
{
    RUNTIME_CALL(runtime_copy(to, from, bytes, kind, stream));
}

RUNTIME(cudaMemcpy, void *to, const void *from, size_t bytes, int kind)
{
    int error = runtime_enter();

    error = error ? error : runtime_copy(to, from, bytes, kind, NULL);
    return runtime_note(error ? error : cuStreamSynchronize(NULL));
}

RUNTIME(cudaMemsetAsync, void *to, int value, size_t bytes, void *stream)
{
    RUNTIME_CALL(cuMemsetD8Async((uintptr_t)to, (unsigned char)value, bytes, stream));
}

RUNTIME(cudaMemset, void *to, int value, size_t bytes)
{
    RUNTIME_CALL(cuMemsetD8Async((uintptr_t)to, (unsigned char)value, bytes, NULL));
}

/* ---- streams and events ---- */

RUNTIME(cudaStreamCreateWithFlags, void **stream, unsigned flags)
{
    RUNTIME_CALL(cuStreamCreate(stream, flags));
}

RUNTIME(cudaStreamCreate, void **stream)
{
    RUNTIME_CALL(cuStreamCreate(stream, 0));
}

RUNTIME(cudaStreamDestroy, void *stream)
{
    RUNTIME_CALL(cuStreamDestroy_v2(stream));
}

RUNTIME(cudaStreamSynchronize, void *stream)
{
    RUNTIME_CALL(cuStreamSynchronize(stream));
}

RUNTIME(cudaStreamQuery, void *stream)
{
    RUNTIME_CALL(cuStreamQuery(stream));
}

RUNTIME(cudaStreamWaitEvent, void *stream, void *event, unsigned flags)
{
    RUNTIME_CALL(cuStreamWaitEvent(stream, event, flags));
}

RUNTIME(cudaEventCreateWithFlags, void **event, unsigned flags)
{
    RUNTIME_CALL(cuEventCreate(event, flags));
}

RUNTIME(cudaEventCreate, void **event)
{
    RUNTIME_CALL(cuEventCreate(event, 0));
}

RUNTIME(cudaEventDestroy, void *event)
{
    RUNTIME_CALL(cuEventDestroy_v2(event));
}

RUNTIME(cudaEventRecord, void *event, void *stream)
{
    RUNTIME_CALL(cuEventRecord(event, stream));
}

RUNTIME(cudaEventQuery, void *event)
{
    RUNTIME_CALL(cuEventQuery(event));
}

RUNTIME(cudaEventSynchronize, void *event)
{
    RUNTIME_CALL(cuEventSynchronize(event));
}

RUNTIME(cudaLaunchHostFunc, void *stream, void (*run)(void *arg), void *arg)
{
    RUNTIME_CALL(cuLaunchHostFunc(stream, run, arg));
}

/*
 * Not a function of CUDA: returns where a loop that replaces a kernel, enqueued by
 * cudaLaunchHostFunc, can access this device memory. Any other address is returned unchanged.
 */
STANDIN_API void *standin_address(const void *address);
void *standin_address(const void *address)
{
    unsigned char *alias = standin_alias(address, 0);

    return alias ? alias : (void *)address;
}
