# SPDX-License-Identifier: BSD-3-Clause
# NCCL: NVIDIA's collectives.
AC_DEFUN([DISTI_CHECK_NCCL],
[DISTI_FIND([nccl], [NCCL], [/usr/local/cuda /usr/local], [nccl.h], [-lnccl],
    [libnccl-dev (NVIDIA's own archive)])])
