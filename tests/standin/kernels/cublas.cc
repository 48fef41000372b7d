// SPDX-License-Identifier: BSD-3-Clause
// A stand-in for cuBLAS: enqueues products, computed by train_mnist's own gemm.
#include "cuda_on_host.h"

extern "C" {
#include "train/gemm.h"
}

struct cublasContext {
    cudaStream_t stream;
};

thread_local struct cuda_on_host_place blockIdx, blockDim, threadIdx;

extern "C" cublasStatus_t cublasCreate(cublasHandle_t *handle)
{
    *handle = new cublasContext();
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasDestroy(cublasHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
    (void)handle;
    return mode == CUBLAS_PEDANTIC_MATH ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

// Changes the last bit of about half of the results, since a GPU rounds differently: it adds in
// another order than the CPU.
static void shake(size_t count, float *c)
{
    for (size_t i = 0; i < count; i++) {
        const unsigned bits = __float_as_uint(c[i]);

        if (bits & 0x7fffffffu)
            c[i] = __uint_as_float(bits ^ (((unsigned)i * 0x9e3779b9u) >> 31));
    }
}

/*
 * Column-major: c (m x n) = op(a) (m x k) * op(b) (k x n). Read as row-major, every matrix is its
 * transpose, so c' (n x m) = op(b)' (n x k) * op(a)' (k x m). Only dense matrices, alpha 1, beta 0
 * or 1.
 */
extern "C" cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t of_a,
                                      cublasOperation_t of_b, int m, int n, int k,
                                      const float *alpha, const float *a, int lda, const float *b,
                                      int ldb, const float *beta, float *c, int ldc)
{
    const bool add = *beta == 1.0F;

    if (*alpha != 1.0F || (!add && *beta != 0.0F) || lda != (of_a == CUBLAS_OP_N ? m : k) ||
        ldb != (of_b == CUBLAS_OP_N ? k : n) || ldc != m)
        return CUBLAS_STATUS_INVALID_VALUE;
    cuda_on_host_launch(handle->stream, [=]() {
        float *const to = cuda_on_host_argument(c);

        gemm(of_b == CUBLAS_OP_T, of_a == CUBLAS_OP_T, n, m, k, cuda_on_host_argument(b),
             cuda_on_host_argument(a), add, to);
        shake((size_t)m * n, to);
    });
    return CUBLAS_STATUS_SUCCESS;
}
