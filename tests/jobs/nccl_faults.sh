#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Each fault of NCCL and the driver ends in time with an error that names it, and leaves no process.
. "$srcdir/tests/support/job.sh"
job_needs_modules

[ -e "$builddir/.libs/dist_nccl.so" ] || { job_skip "NCCL's faults" "there is no module nccl"; exit; }

export DIST_GPU_DRIVER=$builddir/.libs/standin_cuda.so DIST_NCCL_LIBRARY=$builddir/.libs/standin_cuda.so
export DIST_TIMEOUT=30
job_environment=$(env | grep '^DIST_' | sort)
JOB_LIMIT=60

# battery TEXT [OPTION]...: runs the conformance tests, which must fail with TEXT.
battery()
{
    job_fails "$1" self 1 tests/conformance/conformance nccl --spawn 2 --brief --mode blocking "${@:2}"
}
# fault FAULT TEXT [OPTION]...: runs them with that fault.
fault()
{
    STANDIN_FAULT=$1 battery "${@:2}"
}

# Hanging calls end at the timeout, which other calls must not reach.
hangs() { DIST_TIMEOUT=5 job_parallel fault "$@"; }

# ---- unusable libraries ----
fault version 'is version 2.8.3, but libdist requires 2.14.0 or newer'
DIST_NCCL_LIBRARY=$builddir/.libs/standin_partial.so battery 'has no function ncclGetUniqueId'
DIST_NCCL_LIBRARY=/nowhere/libnccl.so battery 'DIST_NCCL_LIBRARY: /nowhere/libnccl.so'
DIST_GPU_DRIVER=/nowhere/libcuda.so battery 'DIST_GPU_DRIVER: /nowhere/libcuda.so'
STANDIN_DEVICES=0 battery 'no CUDA-capable device is detected'
STANDIN_DEVICES=1 battery 'rank 0 and rank 1 are both on device 0'

# ---- joining ----
fault init@1 'rank 1: joining 2 ranks on device 1: NCCL reports: unhandled system error'
# The store notifies the other rank long before its timeout.
STANDIN_FAULT=init@1 JOB_LIMIT=20 job_fails 'rank 0: rank 1 (host ' shell 2 tests/conformance/conformance nccl \
    --brief --mode blocking
hangs init-hang@1 'NCCL did not reach the other ranks within 5000 ms'

# ---- calls ----
on_device=(--memory device --only all_reduce)
fault async@1:5 'rank 1: all_reduce number 5 of' "${on_device[@]}"
grep -qF 'connection lost in launch 5 of rank 1' "$job_output" ||
    job_fail "NCCL's own reason" "it is not in the error"
fault enqueue@1:5 "Cuda failure 'unspecified launch failure' in launch 5" "${on_device[@]}"
hangs hang@0:5 'all_reduce #5 (' "${on_device[@]}"
hangs hang@0:5,abort-slow:1500 'all_reduce #5 (' "${on_device[@]}"
hangs hang@1:5 'waited 5.' --only broadcast
fault memory@1:0 'out of memory' --only all_reduce

# ---- ranks that exit or make no call ----
unset DIST_TIMEOUT
for kind in kill kill-in exit silent; do
    [ -n "${CHECK_SHORT-}" ] && [ $kind != kill-in ] && continue
    job_parallel job shell 3 tests/jobs/mishap nccl $kind 1
done
job_collect

if type -P valgrind >/dev/null && [ -z "${CHECK_SHORT-}" ] && ! [[ ${sanitizers-} ]]; then
    export DIST_TIMEOUT=10
    STANDIN_FAULT=async@1:5 job_fails 'connection lost in launch 5 of rank 1' self 1 \
        "$(type -P valgrind)" --error-exitcode=9 -q "$builddir/tests/conformance/conformance" \
        nccl --spawn 2 --brief --mode blocking "${on_device[@]}"
    job_check "valgrind reports nothing" [ "$(grep -c '^==.*\(Invalid\|uninit\)' "$job_output")" = 0 ]
fi
