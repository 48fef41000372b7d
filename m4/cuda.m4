# SPDX-License-Identifier: BSD-3-Clause
# CUDA: the runtime's header and library.
AC_DEFUN([DISTI_CHECK_CUDA],
[DISTI_FIND([cuda], [CUDA], [/usr/local/cuda /usr/local], [cuda_runtime_api.h], [-lcudart],
    [nvidia-cuda-toolkit (non-free)])])
