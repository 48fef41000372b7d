#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Reproducible mode: for each number of ranks all reductions give equal bits, for every algorithm,
# transport, segmentation, placement and backend, and however the call was split.
. "$srcdir/tests/support/job.sh"

program=tests/jobs/reproducible
hash_of() { sed -n 's/^hash //p' "$job_output"; }
same() { [ -n "$reference" ] && [ "$(hash_of)" = "$reference" ]; }

# variant "[VARIABLE=VALUE]..." LAUNCHER RANKS [PROGRAM'S ARGUMENT]...: must give the reference's
# bits.
variant()
{
    local settings=$1 setting
    shift
    for setting in $settings; do export "${setting?}"; done
    job "$1" "$2" $program "${@:3}"
    [ -z "$job_status" ] || job_check "$settings $*: equal bits" same
    for setting in $settings; do unset "${setting%%=*}"; done
}

# other RANKS ALGORITHM: without the option the bits should differ, otherwise this test could not
# fail.
other()
{
    DIST_ALGO=$2 job self $1 $program gloo $1 free
    [ "$(hash_of)" = "$reference" ] || different=$((different + 1))
}

hashes=''
ranks_list="2 3 4 7"
[ -z "${CHECK_LONG-}" ] || ranks_list="2 3 4 5 7 8"
[ -z "${CHECK_SHORT-}" ] || ranks_list="3 5"
for ranks in $ranks_list; do
    different=0
    job self $ranks $program gloo $ranks option
    reference=$(hash_of)
    hashes+="$reference "
    gloo="self $ranks gloo $ranks option"
    variant DIST_REPRODUCIBLE=1 self $ranks gloo $ranks environment
    variant DIST_ALGO=all_reduce:recursive_doubling,reduce:direct_ordered $gloo
    variant DIST_ALGO=all_reduce:halving_doubling,reduce:binomial_ordered $gloo
    variant "DIST_ALGO=all_reduce:direct_ordered DIST_SEGMENTS=16" $gloo
    variant "DIST_TRANSPORT=tcp DIST_SEGMENTS=1" $gloo
    variant "DIST_TRANSPORT=shm DIST_SHM_CMA=0 DIST_SEGMENTS=3" $gloo
    variant DIST_PROGRESS_THREAD=0 self $ranks gloo $ranks places
    [ $ranks -gt 3 ] || variant "" self $ranks gloo $ranks rounding
    [ $ranks -gt 3 ] || variant DIST_TRANSPORT=tcp self $ranks gloo $ranks rounding
    variant "" openmpi $ranks mpi 0 option
    [ $ranks -gt 4 ] || variant DIST_TRANSPORT=mpi openmpi $ranks mpi 0 option
    [ $ranks -gt 4 ] || variant DIST_MPI_COLL=native openmpi $ranks mpi 0 option
    [ $ranks -gt 3 ] || variant "" mpich $ranks mpi 0 option
    [ $ranks -gt 3 ] || variant DIST_MPI_COLL=native mpich $ranks mpi 0 option
    [ $ranks -gt 2 ] || continue # two ranks have only one order
    other $ranks all_reduce:ring
    other $ranks all_reduce:tree
    job_check "$ranks ranks: without the option the bits differ" test $different -gt 0
done
job_check "each number of ranks has its own bits" \
    test "$(xargs -n 1 <<<"$hashes" | sort -u | wc -l)" = "$(wc -w <<<"$ranks_list")"
DIST_ALGO=all_reduce:ring job_fails "reproducible" self 3 $program gloo 3 option
