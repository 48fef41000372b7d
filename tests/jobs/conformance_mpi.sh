#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The conformance tests against backend mpi: libdist's plans over shared memory and over MPI
# messages, and MPI's own collectives. MPICH busy-waits, so it gets few ranks.
. "$srcdir/tests/support/job.sh"

battery=tests/conformance/conformance
brief=--brief
[ -n "${CHECK_LONG-}" ] && brief= JOB_LIMIT=400

# mpi LAUNCHER RANKS [OPTION]...
mpi() { job $1 $2 $battery mpi $brief "${@:3}"; }

table=$job_folder/support.csv
"$builddir/dist_info" backends --backend mpi --format csv >"$table" 2>/dev/null &&
    mpi openmpi 2 --complete --table "$table"

# Three ranks run all modes over each transport; with other numbers the transports share the modes.
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

# An MPI that claims to accept GPU memory: data that the host has to copy first must not be passed
# to it. The stand-in's memory crashes host code that touches it.
if [ -e "$builddir/.libs/standin_cuda.so" ]; then
    export DIST_GPU_DRIVER=$builddir/.libs/standin_cuda.so
    for operation in all_reduce all_gather all_gather_v; do
        DIST_MPI_COLL=native DIST_MPI_CUDA=1 mpi openmpi 2 --memory device --apart \
            --mode blocking --only $operation
    done
    unset DIST_GPU_DRIVER
fi

# The launcher leaves the other ranks alive if asked to, and they make a group without the lost
# rank. A rank that exits waits for the other ranks in MPI_Finalize, after it has notified them.
job_recovers
kinds="kill exit-atexit"
[ -z "${CHECK_LONG-}" ] || kinds="kill exit exit-atexit exit-thread exit-function"
for kind in $kinds; do
    job_parallel job openmpi 3 tests/jobs/mishap mpi $kind 1
done
job_collect
# MPICH's launcher may end the job as soon as one rank has exited without MPI_Finalize; the test is
# whether the other rank was notified.
mpich_tells()
{
    timeout 60 "$MPICH_RUN" -launcher fork -np 2 "$builddir/tests/jobs/mishap" mpi exit-atexit 1 \
        >"$job_output" 2>&1
    grep -q "rank 0: a rank was lost: " "$job_output"
}
[ -z "${MPICH_RUN-}" ] || job_check "over mpich, a rank that exits is reported" mpich_tells
