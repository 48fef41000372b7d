#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Backend nccl over the stand-in: streams, graphs, batches, all kinds of memory, devices.
program=tests/jobs/nccl_streams

stand_in()
{
    export DIST_GPU_DRIVER=$builddir/.libs/standin_$1.so
    export DIST_NCCL_LIBRARY=$DIST_GPU_DRIVER
}
stand_in cuda
# Makes every operation slow, so that missing ordering gives wrong results.
export STANDIN_DELAY_US=300
unset CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES DIST_DEVICE NCCL_HOSTID
. "$srcdir/tests/support/job.sh"
job_needs_modules

[ -e "$builddir/.libs/dist_nccl.so" ] || { job_skip "$program" "there is no module nccl"; exit; }

job self 1 $program 1
job self 2 $program 2
job self 4 $program 4
STANDIN_DELAY_US=5000 job self 2 $program 2 host # slower than the host fills the copied buffers
DIST_PROGRESS_THREAD=0 job self 2 $program 2
STANDIN_DELAY_US=0 job self 3 $program 3
if [ -z "${CHECK_SHORT-}" ]; then
    stand_in hip
    job self 2 $program 2
    stand_in cuda
fi

# Devices: one that does not exist, one for two ranks, fewer than ranks, none, and one each.
DIST_DEVICE=99 job_fails "device 99 was requested, but only devices 0 to 7 exist" self 2 $program 2
DIST_DEVICE=3 job_fails "rank 0 and rank 1 are both on device 3" self 2 $program 2
STANDIN_DEVICES=2 job_fails "local rank 2 finds only devices 0 to 1" self 3 $program 3
STANDIN_DEVICES=0 job_fails "failed to initialize: no CUDA-capable device" self 2 $program 2
DIST_NCCL_LIBRARY=/nowhere.so job_fails "DIST_NCCL_LIBRARY: /nowhere.so" self 2 $program 2
STANDIN_FAULT=version:2803 job_fails "version 2.8.3, but libdist requires 2.14.0 or newer" self 2 $program 2
