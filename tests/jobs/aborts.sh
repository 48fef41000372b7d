#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A rank aborts a group: every wait in it ends at once, on every rank, with an error that names that
# rank.
. "$srcdir/tests/support/job.sh"

JOB_LIMIT=60
job shell 3 tests/jobs/aborts gloo
DIST_TRANSPORT=tcp job shell 3 tests/jobs/aborts gloo
DIST_PROGRESS_THREAD=0 DIST_NODE_MEMORY=0 job shell 3 tests/jobs/aborts gloo
if [ -e "$builddir/.libs/dist_ucx.so" ]; then
    job shell 3 tests/jobs/aborts ucx
    DIST_TRANSPORT=ucx job shell 3 tests/jobs/aborts ucx
fi
# MPI is not finalized after a group was aborted.
job_leaves_mpi
# LeakSanitizer crashes on MPICH's memory if MPICH is not finalized.
job_mpi=(env "ASAN_OPTIONS=${ASAN_OPTIONS-}:detect_leaks=0")
for launcher in openmpi mpich; do
    job $launcher 3 tests/jobs/aborts mpi
    DIST_TRANSPORT=mpi job $launcher 3 tests/jobs/aborts mpi
    DIST_MPI_COLL=native job $launcher 3 tests/jobs/aborts mpi
done
if [ -e "$builddir/.libs/dist_nccl.so" ]; then
    standin=$builddir/.libs/standin_cuda.so
    DIST_GPU_DRIVER=$standin DIST_NCCL_LIBRARY=$standin job shell 3 tests/jobs/aborts nccl
fi
