/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels as loops on the CPU: the parts of CUDA and cuBLAS that a .cu file needs to be compiled by
 * g++.
 */
#ifndef TESTS_STANDIN_KERNELS_CUDA_ON_HOST_H
#define TESTS_STANDIN_KERNELS_CUDA_ON_HOST_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <functional>

/*
 * CUDA_LAUNCH enqueues a loop over blocks and threads on the stream. Threads run one after another:
 * a kernel must not wait for another thread, and there is no shared memory. Pointer arguments are
 * translated to addresses that the host may access when the loop runs.
 */

#define __global__
#define __device__
#define __host__

struct cuda_on_host_place {
    unsigned x, y, z;
};
extern thread_local struct cuda_on_host_place blockIdx, blockDim, threadIdx;

/* Enqueues work on the stream. */
void cuda_on_host_launch(void *stream, std::function<void()> work);

/* Returns the address at which the host can access this device memory. */
void *cuda_on_host_address(const void *address);

template <typename T> static T cuda_on_host_argument(T value)
{
    return value;
}

template <typename T> static T *cuda_on_host_argument(T *address)
{
    return (T *)cuda_on_host_address((const void *)address);
}

/*
 * Runs a kernel on at least `count` threads, in blocks of `threads` threads. `count` is the
 * kernel's first argument.
 */
template <typename Kernel, typename... Arguments>
static void cuda_on_host_run(unsigned threads, Kernel kernel, size_t count, Arguments... arguments)
{
    blockDim.x = threads;
    for (unsigned block = 0; block < (count + threads - 1) / threads; block++) {
        blockIdx.x = block;
        for (unsigned thread = 0; thread < threads; thread++) {
            threadIdx.x = thread;
            kernel(count, arguments...);
        }
    }
}

template <typename Kernel, typename... Arguments>
static void cuda_on_host_kernel(void *stream, unsigned threads, Kernel kernel, size_t count,
                                Arguments... arguments)
{
    cuda_on_host_launch(stream, [=]() {
        cuda_on_host_run(threads, kernel, count, cuda_on_host_argument(arguments)...);
    });
}

#define CUDA_LAUNCH(cuda, kernel, count, ...)                                                      \
    cuda_on_host_kernel((cuda)->stream, CUDA_THREADS, kernel, (size_t)(count), __VA_ARGS__)

/* ---- functions of the device ---- */

static inline unsigned __float_as_uint(float x)
{
    unsigned bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float __uint_as_float(unsigned bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline unsigned atomicMax(unsigned *at, unsigned value)
{
    const unsigned old = *at;

    *at = value > old ? value : old;
    return old;
}

/* ---- the runtime, with CUDA's numbers; see cuda_runtime_api.h ---- */

typedef int cudaError_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
enum { cudaSuccess = 0 };
enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice
};
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice };
enum { cudaHostAllocDefault = 0, cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2 };

struct cudaPointerAttributes {
    enum cudaMemoryType type;
    int device;
    void *devicePointer, *hostPointer;
    long reserved[8];
};

extern "C" {
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError(void);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer);
cudaError_t cudaMalloc(void **memory, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaMemset(void *to, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);

/* ---- cuBLAS ---- */

typedef struct cublasContext *cublasHandle_t;
typedef enum { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_INVALID_VALUE = 7 } cublasStatus_t;
typedef enum { CUBLAS_OP_N, CUBLAS_OP_T } cublasOperation_t;
typedef enum { CUBLAS_DEFAULT_MATH = 0, CUBLAS_PEDANTIC_MATH = 2 } cublasMath_t;

cublasStatus_t cublasCreate(cublasHandle_t *handle);
cublasStatus_t cublasDestroy(cublasHandle_t handle);
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode);
cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t of_a, cublasOperation_t of_b,
                           int m, int n, int k, const float *alpha, const float *a, int lda,
                           const float *b, int ldb, const float *beta, float *c, int ldc);
}

#endif
