/* SPDX-License-Identifier: BSD-3-Clause */
/* GPU memory through the driver API. Neither CUDA nor HIP is needed to build this file. */
#include "gpu.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* X(member, CUDA's name, HIP's name, parameters): functions that return 0 or an error number. */
#define GPU_CALLS(X)                                                                               \
    X(init, "cuInit", "hipInit", (unsigned flags))                                                 \
    X(count, "cuDeviceGetCount", "hipGetDeviceCount", (int *count))                                \
    X(retain, "cuDevicePrimaryCtxRetain", "hipDevicePrimaryCtxRetain",                             \
      (void **context, int device))                                                                \
    X(push, "cuCtxPushCurrent_v2", "hipCtxPushCurrent", (void *context))                           \
    X(create, "cuStreamCreate", "hipStreamCreateWithFlags", (void **stream, unsigned flags))       \
    X(synchronize, "cuStreamSynchronize", "hipStreamSynchronize", (void *stream))                  \
    X(attributes, "cuPointerGetAttributes", "hipDrvPointerGetAttributes",                          \
      (unsigned count, int *attributes, void **data, uintptr_t pointer))                           \
    X(alloc, "cuMemAlloc_v2", "hipMalloc", (uintptr_t * memory, size_t bytes))                     \
    X(free, "cuMemFree_v2", "hipFree", (uintptr_t memory))                                         \
    X(put, "cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync",                                           \
      (uintptr_t to, const void *from, size_t bytes, void *stream))                                \
    X(get, "cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync",                                           \
      (void *to, uintptr_t from, size_t bytes, void *stream))

enum { GPU_NON_BLOCKING = 1, GPU_MEMORY_TYPE = 2, GPU_TYPE_DEVICE = 2 };

static struct {
#define GPU_MEMBER(member, cuda, hip, parameters) int(*member) parameters;
    GPU_CALLS(GPU_MEMBER)
#undef GPU_MEMBER
    void *stream;
    char wrong[512];
} gpu;

static void *gpu_library(void)
{
    static const char *const files[] = {"libcuda.so.1", "libamdhip64.so.7", "libamdhip64.so.6",
                                        "libamdhip64.so"};
    const char *given = secure_getenv("DIST_GPU_DRIVER");
    void *handle = NULL;

    if (given && *given)
        return dlopen(given, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]) && !handle; i++)
        handle = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
    return handle;
}

/* Resolves all functions. Returns NULL, or the name of the first function that is missing. */
static const char *gpu_resolve(void *handle)
{
    const bool hip = !dlsym(handle, "cuInit");
    void *symbol;

#define GPU_RESOLVE(member, cuda, hip_name, parameters)                                            \
    symbol = dlsym(handle, hip ? hip_name : cuda);                                                 \
    if (!symbol)                                                                                   \
        return hip ? hip_name : cuda;                                                              \
    memcpy(&gpu.member, &symbol, sizeof(symbol));
    GPU_CALLS(GPU_RESOLVE)
#undef GPU_RESOLVE
    return NULL;
}

/* Initializes the driver and creates the stream. Returns 0, an error of the driver, or -1 if there
 * is no device. */
static int gpu_start(int local_rank)
{
    const char *given = getenv("DIST_DEVICE");
    void *context;
    int count = 0, error = gpu.init(0);

    error = error ? error : gpu.count(&count);
    if (!error && count == 0)
        return -1;
    if (!error)
        error = gpu.retain(&context,
                           given && *given ? (int)strtol(given, NULL, 10) : local_rank % count);
    error = error ? error : gpu.push(context);
    return error ? error : gpu.create(&gpu.stream, GPU_NON_BLOCKING);
}

const char *gpu_open(int local_rank)
{
    void *handle = gpu.stream ? NULL : gpu_library();
    const char *missing = handle ? gpu_resolve(handle) : NULL;
    int error;

    if (gpu.stream)
        return NULL;
    if (!handle || missing) {
        snprintf(gpu.wrong, sizeof(gpu.wrong),
                 "no GPU driver found (%s): install NVIDIA's or AMD's driver, or use host memory",
                 missing                            ? missing
                 : secure_getenv("DIST_GPU_DRIVER") ? dlerror()
                                                    : "libcuda.so.1 or libamdhip64.so");
        return gpu.wrong;
    }
    error = gpu_start(local_rank);
    if (error == 0)
        return NULL;
    gpu.stream = NULL;
    snprintf(gpu.wrong, sizeof(gpu.wrong),
             error < 0 ? "the GPU driver finds no GPU: use host memory"
                       : "the GPU driver failed to initialize: error %d",
             error);
    return gpu.wrong;
}

void *gpu_stream(void)
{
    return gpu.stream;
}

void *gpu_alloc(size_t bytes)
{
    uintptr_t memory;

    return gpu.alloc(&memory, bytes) ? NULL : (void *)memory;
}

void gpu_free(void *memory)
{
    gpu.free((uintptr_t)memory);
}

bool gpu_owns(const void *memory)
{
    unsigned type = 0;
    int attribute = GPU_MEMORY_TYPE;
    void *result = &type;

    return gpu.stream && gpu.attributes(1, &attribute, &result, (uintptr_t)memory) == 0 &&
           type == GPU_TYPE_DEVICE;
}

bool gpu_synchronize(void)
{
    return gpu.synchronize(gpu.stream) == 0;
}

bool gpu_put(void *to, const void *from, size_t bytes)
{
    return gpu.put((uintptr_t)to, from, bytes, gpu.stream) == 0 && gpu_synchronize();
}

bool gpu_get(void *to, const void *from, size_t bytes)
{
    return gpu.get(to, (uintptr_t)from, bytes, gpu.stream) == 0 && gpu_synchronize();
}
