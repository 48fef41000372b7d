#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Ranks in separate PID, user and mount namespaces, under each launcher.
JOB_LIMIT=60
. "$srcdir/tests/support/job.sh"

[ -z "${CHECK_SHORT-}${CHECK_WATCHED-}" ] || { job_skip "namespaces" "the other suite runs them"; exit; }
as_root=()
[ "$(id -u)" = 0 ] || as_root=(--user --map-root-user)
unshare "${as_root[@]}" --pid --fork --mount-proc --mount true 2>/dev/null ||
    { job_skip "namespaces" "unshare is not allowed here"; exit; }

run=$builddir/distrun
hello=$builddir/examples/hello_all_reduce
battery=$builddir/tests/conformance/conformance

# Starts a program as bwrap, podman and apptainer do: in namespaces of each rank, with and without a
# /proc of their own; "one" leaves rank 0 outside.
cat >"$job_folder/in" <<'END'
kind=$1
shift
case $kind in
one) [ "${RANK-${OMPI_COMM_WORLD_RANK-${PMI_RANK-}}}" = 0 ] && exec "$@" ;;
esac
case $kind in
user) exec unshare --user --map-root-user "$@" ;;
pid) exec unshare $AS_ROOT --pid --fork --mount-proc "$@" ;;
pid-proc) exec unshare $AS_ROOT --pid --fork "$@" ;; # sees the /proc outside
user-pid | one) exec unshare --user --map-root-user --pid --fork --mount-proc "$@" ;;
no-proc) exec unshare $AS_ROOT --mount sh -c 'mount -t tmpfs none /proc && exec "$@"' sh "$@" ;;
esac
END
export AS_ROOT="${as_root[*]}"
kinds=(user pid pid-proc user-pid no-proc one)

in_kinds()
{
    local kind
    for kind in "${kinds[@]}"; do
        "$run" -n 2 "$BASH" "$job_folder/in" "$kind" "$@" >"$job_output" 2>&1 &&
            [ "$(grep -c 'of 2: sum 1$' "$job_output")" = 2 ] || { echo "$kind" >>"$job_output"; return 1; }
    done
}
job_check "distrun: ranks in ${kinds[*]}" in_kinds "$hello"

# A program that closes the inherited descriptors, as Python's subprocess does: the path still works.
# shellcheck disable=SC2016
closed='for fd in /proc/self/fd/*; do fd=${fd##*/}; [ "$fd" -le 2 ] || eval "exec $fd>&-"; done; exec "$@"'
job self 2 distrun -n 2 "$BASH" -c "$closed" closed "$hello"
job_fails "has closed descriptor" self 2 distrun -n 2 "$BASH" -c "$closed" closed \
    "$BASH" "$job_folder/in" user-pid "$hello"
DIST_AUTH=none job self 2 distrun -n 2 "$BASH" -c "$closed" closed \
    "$BASH" "$job_folder/in" user-pid "$hello"

# All ranks of a job of dist_spawn in one namespace.
spawned()
{
    local kind
    for kind in pid-proc no-proc; do
        "$BASH" "$job_folder/in" "$kind" "$builddir/dist_bench" -n 2 --backend gloo -b 4 -e 4 -i 2 -x 1 \
            all_reduce >"$job_output" 2>&1 || { echo "$kind" >>"$job_output"; return 1; }
    done
}
job_check "dist_bench -n in namespaces" spawned

# distrun exits if it finds no processes in /proc, and kills only its own.
# shellcheck disable=SC2016
no_proc_ends()
{
    timeout 20 "$BASH" "$job_folder/in" no-proc "$run" -n 1 sh -c 'sleep 2 >&- 2>&- &' >"$job_output" 2>&1 &&
        grep -q 'cannot find and end a process that a worker started: /proc is not mounted' "$job_output"
}
job_check "a process left behind, without /proc" no_proc_ends

# MPICH over UCX does not start in a PID namespace with the /proc of another one, nor with ranks in
# two.
for kind in ${CHECK_LONG:+"${kinds[@]}"}; do
    job self 2 distrun -n 2 "$BASH" "$job_folder/in" "$kind" "$battery" gloo --brief --mode blocking
    job shell 2 "$BASH" "$job_folder/in" "$kind" "$battery" gloo --brief --mode blocking
    job openmpi 2 "$BASH" "$job_folder/in" "$kind" "$battery" gloo --brief --mode blocking
    case $kind in
    pid-proc | one) ;;
    *) job mpich 2 "$BASH" "$job_folder/in" "$kind" "$battery" gloo --brief --mode blocking ;;
    esac
    [ "$kind" = one ] ||
        job self 2 "$BASH" "$job_folder/in" "$kind" "$battery" gloo --spawn 2 --brief --mode blocking
done
