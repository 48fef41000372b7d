#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A rank that waits for another rank uses little CPU time: over transports on which it can sleep,
# and over MPI.
JOB_ALONE=yes
. "$srcdir/tests/support/job.sh"

[ -z "${CHECK_SHORT-}" ] || { job_skip "idle ranks" "the other suite measures"; exit; }

JOB_LIMIT=60
job_parallel job shell 3 tests/jobs/idle gloo
DIST_TRANSPORT=tcp job_parallel job shell 3 tests/jobs/idle gloo
DIST_PROGRESS_THREAD=0 job_parallel job shell 8 tests/jobs/idle gloo
mpis=(openmpi)
[ -z "${CHECK_LONG-}" ] || mpis=(openmpi mpich)
for mpi in "${mpis[@]}"; do
    job_parallel job $mpi 3 tests/jobs/idle mpi
    DIST_TRANSPORT=mpi job_parallel job $mpi 3 tests/jobs/idle mpi
    DIST_MPI_COLL=native job_parallel job $mpi 3 tests/jobs/idle mpi
done
job_collect
