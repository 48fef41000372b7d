#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The battery against backend mpi: our plans over shared memory, over MPI messages, and MPI's own
# collectives. MPICH spins when it waits, so it gets few ranks.
. "$srcdir/tests/support/job.sh"

battery=tests/conformance/conformance
brief=--brief
[ -n "${CHECK_LONG-}" ] && brief= JOB_LIMIT=400

# mpi LAUNCHER RANKS [OPTION]...
mpi() { job $1 $2 $battery mpi $brief "${@:3}"; }

table=$job_folder/support.csv
"$builddir/dist_info" backends --backend mpi --format csv >"$table" 2>/dev/null &&
    mpi openmpi 2 --complete --table "$table"

# Each way has all its manners with three ranks; with others all ways together have them.
ranks_list="1 3 5" mpich_list="1 2 3"
[ -z "${CHECK_LONG-}" ] || ranks_list="1 2 3 4 5 7 8"
[ -z "${CHECK_SHORT-}" ] || ranks_list="1 2 3" mpich_list=2
for ranks in $ranks_list; do
    modes=(all all all)
    [ $ranks -ne 2 ] || modes=(flood blocking async)
    [ $ranks -lt 5 ] || modes=(group async flood)
    [ -z "${CHECK_LONG-}" ] || modes=(all all all)
    mpi openmpi $ranks --mode ${modes[0]}
    [ $ranks -gt 1 ] || [ -n "${CHECK_LONG-}" ] || continue
    DIST_TRANSPORT=mpi mpi openmpi $ranks --mode ${modes[1]}
    DIST_MPI_COLL=native mpi openmpi $ranks --mode ${modes[2]}
done
for ranks in $mpich_list; do
    modes=(all all all)
    [ $ranks -lt 3 ] || modes=(async flood group)
    [ -z "${CHECK_LONG-}" ] || modes=(all all all)
    mpi mpich $ranks --mode ${modes[0]}
    [ $ranks -gt 1 ] || [ -n "${CHECK_LONG-}" ] || continue
    DIST_TRANSPORT=mpi mpi mpich $ranks --mode ${modes[1]}
    DIST_MPI_COLL=native mpi mpich $ranks --mode ${modes[2]}
done
! job_turn 0 2 || mpi openmpi 4 --reversed --mode async
! job_turn 1 2 || DIST_TRANSPORT=mpi mpi openmpi 3 --reversed --mode group
! job_turn 0 2 || DIST_MPI_COLL=native mpi openmpi 3 --reversed --mode flood
! job_turn 1 2 || DIST_MPI_COLL=native mpi mpich 2 --reversed --mode blocking

# An MPI that accepts memory of GPUs, as this one says that it does: what the host has to copy first
# must not be left to it. The stand-in's memory ends a process whose host code touches it.
if [ -e "$builddir/.libs/standin_cuda.so" ]; then
    export DIST_GPU_DRIVER=$builddir/.libs/standin_cuda.so
    for operation in all_reduce all_gather all_gather_v; do
        DIST_MPI_COLL=native DIST_MPI_CUDA=1 mpi openmpi 2 --memory device --apart \
            --mode blocking --only $operation
    done
    unset DIST_GPU_DRIVER
fi

# MPI's launcher lets the others live, if it is asked to: they make a group without the lost one.
# One that exits waits for the others in MPI_Finalize, so it has told them before.
job_recovers
kinds="kill exit-atexit"
[ -z "${CHECK_LONG-}" ] || kinds="kill exit exit-atexit exit-thread exit-function"
for kind in $kinds; do
    job_aside job openmpi 3 tests/jobs/mishap mpi $kind 1
done
job_collect
# MPICH's may end the job as soon as one rank has left without MPI_Finalize: what counts is that the
# other one has been told.
mpich_tells()
{
    timeout 60 "$MPICH_RUN" -launcher fork -np 2 "$builddir/tests/jobs/mishap" mpi exit-atexit 1 \
        >"$job_output" 2>&1
    grep -q "rank 0: a rank was lost: " "$job_output"
}
[ -z "${MPICH_RUN-}" ] || job_check "mpich tells of a rank that exits" mpich_tells
