#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The conformance tests against backend nccl on the stand-in for GPUs: data on the device, on the
# host, both.
. "$srcdir/tests/support/job.sh"
job_needs_modules

[ -e "$builddir/.libs/dist_nccl.so" ] || { job_skip "backend nccl" "there is no module nccl"; exit; }

battery=tests/conformance/conformance
brief=--brief
[ -n "${CHECK_LONG-}" ] && brief= JOB_LIMIT=600
# Without the stand-in the real driver would be used.
export DIST_GPU_DRIVER=$builddir/.libs/standin_cuda.so DIST_NCCL_LIBRARY=$builddir/.libs/standin_cuda.so
job_environment=$(env | grep '^DIST_' | sort)

# nccl RANKS [OPTION]...
nccl() { job self 1 $battery nccl --spawn "$@" $brief; }

nccl 1 --memory any ${brief:+--mode group}
nccl 3 --memory any --mode blocking
nccl 2 --memory device
nccl 2 --memory ordinary --mode flood
nccl 2 --memory shared --mode group
nccl 3 --memory device --reversed --mode async

# Delays the stand-in's streams, so that data used before the stream has completed are wrong.
export STANDIN_DELAY_US=300
nccl 2 --memory device --only all_reduce
nccl 3 --memory device --only all_to_all_v --mode flood
nccl 2 --memory ordinary --only send
unset STANDIN_DELAY_US

# The same with the names of HIP.
DIST_GPU_DRIVER=$builddir/.libs/standin_hip.so DIST_NCCL_LIBRARY=$builddir/.libs/standin_hip.so \
    nccl 2 --memory device --mode blocking

# GPU memory with a backend that does not support it.
job self 1 $battery gloo --spawn 2 --memory device --mode async $brief

if [ -z "${CHECK_SHORT-}" ]; then
    nccl 4 --memory device --mode group
    nccl 8 --memory device --mode blocking --only all_reduce
    nccl 8 --memory ordinary --mode flood --only gather_v
fi
if [ -n "${CHECK_LONG-}" ]; then
    for ranks in 1 2 3 4 5 8; do
        for memory in device ordinary shared; do nccl $ranks --memory $memory; done
    done
fi
