#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Random collectives on several groups, waited for in any order, without a progress thread: over
# every transport, on one machine and on two.
. "$srcdir/tests/support/job.sh"
. "$srcdir/tests/support/nodes.sh"

program=tests/jobs/any_order
steps=12 seed=()
[ -z "${CHECK_LONG-}" ] || steps=1500 JOB_LIMIT=300
# ORDER_SEED repeats the case that printed it; with ORDER_EVEN all blocks have the same size.
[ -z "${ORDER_SEED-}" ] || seed=("$ORDER_SEED")
export DIST_PROGRESS_THREAD=0

# order LAUNCHER RANKS BACKEND: runs a case; the seed is in the log.
order()
{
    job "$1" "$2" $program "$3" $steps ${seed[@]+"${seed[@]}"}
    [ ! -s "$job_output" ] || sed -n 's/^seed /# seed /p' "$job_output"
}

for ranks in 2 3 5; do
    order shell $ranks gloo
    DIST_NODE_MEMORY=0 order shell $ranks gloo
    DIST_TRANSPORT=tcp order shell $ranks gloo
done
[ ! -e "$builddir/.libs/dist_ucx.so" ] || DIST_TRANSPORT=ucx order shell 4 ucx
for mpi in openmpi mpich; do
    order $mpi 3 mpi
    DIST_TRANSPORT=mpi order $mpi 4 mpi
    DIST_MPI_COLL=native order $mpi 2 mpi
    DIST_MPI_COLL=native order $mpi 3 mpi
done
DIST_MPI_COLL=native order openmpi 5 mpi
DIST_MPI_COLL=native DIST_PROGRESS_THREAD=1 order openmpi 4 mpi
# With this seed, messages that MPICH had accepted while their receiver did not poll made progress
# only when MPICH was called again.
seed=(1795751175237364)
ORDER_EVEN=yes DIST_TRANSPORT=mpi order mpich 4 mpi
seed=(${ORDER_SEED-})
DIST_PROGRESS_THREAD=1 order shell 4 gloo

if node_make 2>"$job_folder/why"; then
    nodes 4 "1 2" "$builddir/$program" gloo $steps ${seed[@]+"${seed[@]}"}
else
    job_skip "two machines" "no network namespaces here: $(tail -n 1 "$job_folder/why")"
fi
