#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Ranks that call different things find out by their next call, whatever they call and over
# whatever it goes.
. "$srcdir/tests/support/job.sh"

JOB_LIMIT=100
stride=101
[ -z "${CHECK_SHORT-}" ] || stride=251
[ -z "${CHECK_LONG-}" ] || stride=1 JOB_LIMIT=1800

for ranks in 2 3 4; do
    job shell $ranks tests/jobs/different gloo $stride
    DIST_TRANSPORT=tcp job shell $ranks tests/jobs/different gloo $stride
done
DIST_NODE_MEMORY=0 job shell 3 tests/jobs/different gloo $stride
if [ -e "$builddir/.libs/dist_ucx.so" ]; then
    DIST_TRANSPORT=ucx job shell 3 tests/jobs/different ucx $stride
else
    job_skip ucx "the ucx module was not built"
fi
# MPICH has 2048 communicators, and a group that broke keeps its own.
[ $stride -gt 1 ] || stride=2
# MPI_Finalize waits for what a group that broke had begun, so it is left out then, which Open MPI's
# mpirun calls improper.
DIST_TRANSPORT=mpi job_fails "different: " openmpi 3 tests/jobs/different mpi $stride
# The search for leaks itself crashes where MPICH has not been finalized.
job_mpi=(env "ASAN_OPTIONS=${ASAN_OPTIONS-}:detect_leaks=0")
job_leaves_mpi
DIST_TRANSPORT=mpi job mpich 2 tests/jobs/different mpi $stride
