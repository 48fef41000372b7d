# SPDX-License-Identifier: BSD-3-Clause
# CUDA: nvcc and cuBLAS, for the kernels of train_mnist. The library itself needs neither: it loads the
# driver at run time.

# DISTI_NVCC_TRY(DIR, IF-YES): checks whether DIR/bin/nvcc links a shared object with cuBLAS for the
# machine of $CC.
AC_DEFUN([DISTI_NVCC_TRY],
[AS_IF([test -x "$1/bin/nvcc"],
    [AS_ECHO(["#include <cublas_v2.h>
__global__ void f(float *x) { *x = 1; }
int g(float *x) { cublasHandle_t h; f<<<1, 1>>>(x); return cublasCreate(&h); }"]) >conftest.cu
    disti_nvcc_try="$1/bin/nvcc -std=c++17 $NVCCFLAGS -shared -Xcompiler -fPIC -o conftest.so conftest.cu"
    AS_IF([AC_TRY_COMMAND([$disti_nvcc_try -lcublas]) &&
        AC_TRY_COMMAND([$CC $CFLAGS -nostdlib -shared -o conftest-cc.so conftest.so])], [$2])
    rm -f conftest.cu conftest.so conftest-cc.so])])

# Sets NVCC_ARCHITECTURES: the common GPU generations that this nvcc supports, and PTX of the latest one
# for newer GPUs.
AC_DEFUN([DISTI_NVCC_ARCHITECTURES],
[disti_known=$("$NVCC" --list-gpu-arch 2>/dev/null)
NVCC_ARCHITECTURES= disti_latest=
for disti_arch in 75 80 90; do
    AS_CASE([" $(echo $disti_known) "], [*" compute_$disti_arch "*],
        [AS_VAR_APPEND([NVCC_ARCHITECTURES],
            [" -gencode arch=compute_$disti_arch,code=sm_$disti_arch"])
        disti_latest=$disti_arch])
done
AS_IF([test -n "$disti_latest"],
    [AS_VAR_APPEND([NVCC_ARCHITECTURES],
        [" -gencode arch=compute_$disti_latest,code=compute_$disti_latest"])])])

AC_DEFUN([DISTI_CHECK_CUDA],
[DISTI_WITH_MODULE([cuda], [compile train_mnist's kernels for GPUs])
NVCC=
AC_ARG_VAR([NVCCFLAGS], [flags for nvcc])
AS_IF([test "$with_cuda" != no],
    [AC_MSG_CHECKING([for CUDA's nvcc and cuBLAS])
    disti_nvcc=$(command -v nvcc)
    disti_dirs="$CUDA_HOME /usr/local/cuda ${disti_nvcc%/bin/nvcc} /usr"
    AS_IF([test "$disti_cross" = yes], [disti_dirs=])
    for disti_dir in ${cuda_prefix:-$disti_dirs}; do
        AS_IF([test "$cuda_found" = no],
            [DISTI_NVCC_TRY([$disti_dir],
                [NVCC=$disti_dir/bin/nvcc
                disti_version=$("$NVCC" --version | sed -n 's/.*release \(@<:@0-9.@:>@*\).*/\1/p')
                DISTI_FOUND([cuda], [yes (nvcc $disti_version in $disti_dir)])])])
    done
    AC_MSG_RESULT([$cuda_found])
    AS_IF([test "$cuda_found" = yes], [DISTI_NVCC_ARCHITECTURES],
        [DISTI_MISSING([cuda], [no nvcc that links with cuBLAS: train_mnist runs on the CPU only],
            [nvidia-cuda-toolkit (non-free)])])])
AC_SUBST([NVCC])
AC_SUBST([NVCC_ARCHITECTURES])
AM_CONDITIONAL([HAVE_NVCC], [test "$cuda_found" = yes])])
