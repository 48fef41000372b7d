/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of a GPU for the battery's data. Neither CUDA nor HIP is needed to build it. */
#include "device.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* X(member, CUDA's name, HIP's name, parameters): all return 0 or an error number. */
#define DEVICE_CALLS(X)                                                                            \
    X(init, "cuInit", "hipInit", (unsigned flags))                                                 \
    X(count, "cuDeviceGetCount", "hipGetDeviceCount", (int *count))                                \
    X(retain, "cuDevicePrimaryCtxRetain", "hipDevicePrimaryCtxRetain",                             \
      (void **context, int device))                                                                \
    X(push, "cuCtxPushCurrent_v2", "hipCtxPushCurrent", (void *context))                           \
    X(create, "cuStreamCreate", "hipStreamCreateWithFlags", (void **stream, unsigned flags))       \
    X(synchronize, "cuStreamSynchronize", "hipStreamSynchronize", (void *stream))                  \
    X(attribute, "cuPointerGetAttribute", "hipPointerGetAttribute",                                \
      (void *data, int attribute, uintptr_t pointer))                                              \
    X(alloc, "cuMemAlloc_v2", "hipMalloc", (uintptr_t * memory, size_t bytes))                     \
    X(free, "cuMemFree_v2", "hipFree", (uintptr_t memory))                                         \
    X(put, "cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync",                                           \
      (uintptr_t to, const void *from, size_t bytes, void *stream))                                \
    X(get, "cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync",                                           \
      (void *to, uintptr_t from, size_t bytes, void *stream))

enum { DEVICE_MEMORY_TYPE = 2, DEVICE_TYPE_DEVICE = 2, DEVICE_NON_BLOCKING = 1 };

static struct {
#define DEVICE_MEMBER(member, cuda, hip, parameters) int(*member) parameters;
    DEVICE_CALLS(DEVICE_MEMBER)
#undef DEVICE_MEMBER
    void *stream;
} device;

static void *device_library(void)
{
    static const char *const files[] = {"libcuda.so.1", "libamdhip64.so.7", "libamdhip64.so.6",
                                        "libamdhip64.so"};
    const char *given = getenv("DIST_GPU_DRIVER");
    void *handle = NULL;

    if (given && *given)
        return dlopen(given, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]) && !handle; i++)
        handle = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
    return handle;
}

/* NULL: all functions are there; else the first that is not. */
static const char *device_resolve(void *handle)
{
    const bool hip = !dlsym(handle, "cuInit");
    void *symbol;

#define DEVICE_RESOLVE(member, cuda, hip_name, parameters)                                         \
    symbol = dlsym(handle, hip ? hip_name : cuda);                                                 \
    if (!symbol)                                                                                   \
        return hip ? hip_name : cuda;                                                              \
    memcpy(&device.member, &symbol, sizeof(symbol));
    DEVICE_CALLS(DEVICE_RESOLVE)
#undef DEVICE_RESOLVE
    return NULL;
}

static int device_start(int local_rank)
{
    const char *asked = getenv("DIST_DEVICE");
    void *context;
    int count = 0, error = device.init(0);

    error = error ? error : device.count(&count);
    if (!error && count == 0)
        return -1;
    error =
        error ? error : device.retain(&context, asked && *asked ? atoi(asked) : local_rank % count);
    error = error ? error : device.push(context);
    return error ? error : device.create(&device.stream, DEVICE_NON_BLOCKING);
}

bool device_open(int local_rank, char *reason, size_t reason_size)
{
    void *handle = device.stream ? NULL : device_library();
    const char *missing = handle ? device_resolve(handle) : NULL;
    int error;

    if (device.stream)
        return true;
    if (!handle || missing) {
        snprintf(reason, reason_size, "no GPU driver: %s", missing ? missing : dlerror());
        return false;
    }
    error = device_start(local_rank);
    if (error)
        snprintf(reason, reason_size, "the GPU driver does not start: error %d", error);
    return !error;
}

void *device_stream(void)
{
    return device.stream;
}

void *device_alloc(size_t bytes)
{
    uintptr_t memory;

    return device.alloc(&memory, bytes) ? NULL : (void *)memory;
}

void device_free(void *memory)
{
    device.free((uintptr_t)memory);
}

bool device_owns(const void *memory)
{
    unsigned type = 0;

    return device.stream && device.attribute(&type, DEVICE_MEMORY_TYPE, (uintptr_t)memory) == 0 &&
           type == DEVICE_TYPE_DEVICE;
}

bool device_put(void *memory, const void *from, size_t bytes)
{
    return device.put((uintptr_t)memory, from, bytes, device.stream) == 0 &&
           device.synchronize(device.stream) == 0;
}

bool device_get(void *to, const void *memory, size_t bytes)
{
    return device.get(to, (uintptr_t)memory, bytes, device.stream) == 0 &&
           device.synchronize(device.stream) == 0;
}
