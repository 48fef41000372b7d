// SPDX-License-Identifier: BSD-3-Clause
// The part of CUDA's runtime that train_mnist uses. It calls the stand-in's driver, the library
// DIST_GPU_DRIVER. Kernels run as host functions on its streams, and access its second mapping of
// device memory.
#include "cuda_on_host.h"

#include <dlfcn.h>
#include <stdlib.h>

enum { MEMORY_TYPE = 2, DEVICE_ORDINAL = 9 }; // of cuPointerGetAttributes
enum { NO_DRIVER = 35 };                      // cudaErrorInsufficientDriver

static thread_local cudaError_t last_error;

static cudaError_t keep(cudaError_t error)
{
    if (error)
        last_error = error;
    return error;
}

static void *driver()
{
    static void *const handle =
        getenv("DIST_GPU_DRIVER") ? dlopen(getenv("DIST_GPU_DRIVER"), RTLD_NOW | RTLD_LOCAL) : NULL;

    return handle;
}

// Calls a function of the driver. Returns its error, or NO_DRIVER.
template <typename... Arguments> static cudaError_t call(const char *name, Arguments... arguments)
{
    void *symbol = driver() ? dlsym(driver(), name) : NULL;

    return keep(symbol ? ((int (*)(Arguments...))symbol)(arguments...) : NO_DRIVER);
}

// ---- kernels ----

static void run_work(void *arg)
{
    std::function<void()> *work = (std::function<void()> *)arg;

    (*work)();
    delete work;
}

void cuda_on_host_launch(void *stream, std::function<void()> work)
{
    call("cuLaunchHostFunc", stream, run_work, (void *)new std::function<void()>(work));
}

void *cuda_on_host_address(const void *address)
{
    typedef unsigned char *(*alias_fn)(const void *, size_t);
    static const alias_fn alias = driver() ? (alias_fn)dlsym(driver(), "standin_alias") : NULL;
    void *mapped = alias ? alias(address, 1) : NULL;

    return mapped ? mapped : (void *)address;
}

// ---- errors and devices ----

extern "C" const char *cudaGetErrorString(cudaError_t error)
{
    const char *text = NULL;

    if (error == NO_DRIVER)
        return "there is no driver";
    return call("cuGetErrorString", error, &text) == 0 && text ? text : "unknown error";
}

extern "C" cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = last_error;

    last_error = cudaSuccess;
    return error;
}

extern "C" cudaError_t cudaGetDeviceCount(int *count)
{
    const cudaError_t error = call("cuInit", 0U);

    return error ? error : call("cuDeviceGetCount", count);
}

extern "C" cudaError_t cudaSetDevice(int device)
{
    void *context = NULL;
    const cudaError_t error = call("cuDevicePrimaryCtxRetain", &context, device);

    return error ? error : call("cuCtxSetCurrent", context);
}

extern "C" cudaError_t cudaDeviceSynchronize(void)
{
    return call("cuCtxSynchronize");
}

// ---- memory ----

extern "C" cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes,
                                                const void *pointer)
{
    unsigned type = 0;
    int asked[] = {MEMORY_TYPE, DEVICE_ORDINAL};
    void *told[] = {&type, &attributes->device};

    *attributes = cudaPointerAttributes();
    const cudaError_t error =
        call("cuPointerGetAttributes", 2u, &asked[0], &told[0], (uintptr_t)pointer);
    if (type != 0) // otherwise it is not the driver's memory
        attributes->type = type == 2 ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    return error;
}

extern "C" cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    return call("cuMemAlloc_v2", (uintptr_t *)memory, bytes);
}

extern "C" cudaError_t cudaFree(void *memory)
{
    return memory ? call("cuMemFree_v2", (uintptr_t)memory) : cudaSuccess;
}

extern "C" cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    return call("cuMemHostAlloc", memory, bytes, flags);
}

extern "C" cudaError_t cudaFreeHost(void *memory)
{
    return memory ? call("cuMemFreeHost", memory) : cudaSuccess;
}

extern "C" cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    return call("cuMemsetD8Async", (uintptr_t)to, (unsigned char)value, bytes, (void *)stream);
}

extern "C" cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    return cudaMemsetAsync(to, value, bytes, NULL);
}

extern "C" cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                                       enum cudaMemcpyKind kind, cudaStream_t stream)
{
    (void)kind;
    return call("cuMemcpyAsync", (uintptr_t)to, (uintptr_t)from, bytes, (void *)stream);
}

extern "C" cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes,
                                  enum cudaMemcpyKind kind)
{
    const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, NULL);

    return error ? error : cudaStreamSynchronize(NULL);
}

// ---- streams and events ----

extern "C" cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return call("cuStreamCreate", (void **)stream, flags);
}

extern "C" cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    return call("cuStreamDestroy_v2", (void *)stream);
}

extern "C" cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return call("cuStreamSynchronize", (void *)stream);
}

extern "C" cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    return call("cuEventCreate", (void **)event, flags);
}

extern "C" cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    return call("cuEventDestroy_v2", (void *)event);
}

extern "C" cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return call("cuEventRecord", (void *)event, (void *)stream);
}

extern "C" cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return call("cuEventSynchronize", (void *)event);
}
