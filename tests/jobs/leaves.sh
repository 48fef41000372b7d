#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A rank leaves while other ranks wait for it in a call: they get an error at once, which names it.
. "$srcdir/tests/support/job.sh"

JOB_LIMIT=40
program=tests/jobs/leaves

# ways LAUNCHER BACKEND: runs all cases in this environment.
ways()
{
    local way
    for way in reduce recv send monitored group other one exit broadcast; do
        job_parallel job "$1" 3 $program "$2" $way
    done
    job_collect
}

DIST_TRANSPORT=shm ways shell gloo
[ -n "${CHECK_SHORT-}" ] || DIST_NODE_MEMORY=0 ways shell gloo
DIST_TRANSPORT=tcp ways shell gloo
# UCX leaks memory of a connection whose peer has exited.
[ ! -e "$builddir/.libs/dist_ucx.so" ] ||
    ASAN_OPTIONS=${ASAN_OPTIONS-}:detect_leaks=0 DIST_TRANSPORT=ucx ways shell ucx
# Over MPI no rank exits without MPI_Finalize here, since MPI would handle that.
job_recovers
for way in reduce other one; do
    job_parallel job openmpi 3 $program mpi $way
    DIST_TRANSPORT=mpi job_parallel job openmpi 3 $program mpi $way
done
job_collect
