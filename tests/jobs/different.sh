#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Ranks that make different calls get an error by their next call, for all calls and transports.
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
# MPICH has 2048 communicators, and a failed group does not free its own.
[ $stride -gt 1 ] || stride=2
# MPI_Finalize would wait for operations of the failed group, so it is left out, which Open MPI's
# mpirun reports as improper termination.
DIST_TRANSPORT=mpi job_fails "different: " openmpi 3 tests/jobs/different mpi $stride
# The leak check itself crashes if MPICH has not been finalized.
job_mpi=(env "ASAN_OPTIONS=${ASAN_OPTIONS-}:detect_leaks=0")
job_leaves_mpi
DIST_TRANSPORT=mpi job mpich 2 tests/jobs/different mpi $stride
