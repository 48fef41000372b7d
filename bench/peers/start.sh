# SPDX-License-Identifier: BSD-3-Clause
# Starts the processes of another library for dist_bench. Sourced by the peers, which set
#
#   peer_kind      openmpi, mpich, intel, gloo, or dist for libdist itself on a cluster
#   peer_worker    the program of each rank; for dist: dist_bench
#   peer_launcher  the MPI's mpirun; for dist: the contestant, as in dist_bench --compare
#   peer_name      the contestant's name
#
# A peer is called with --probe or a number of ranks; see README.md. If DIST_BENCH_CLUSTER is set to
# a netns-cluster command with its options, the ranks are started on the hosts of that cluster.

peer_cannot() { echo "$peer_name: $*" >&2; exit 77; }

peer_probe()
{
    local version
    case $peer_kind in gloo | dist) ;; *) [ -x "$peer_launcher" ] ;; esac ||
        peer_cannot "no $peer_launcher"
    [ -x "$peer_worker" ] || peer_cannot "$peer_worker was not built"
    version=$("$peer_worker" --version 2>&1) || peer_cannot "$peer_worker does not run: $version"
    [ -n "$version" ] || peer_cannot "$peer_worker does not print its version"
    echo "$version"
}

# On one machine: shared memory, the loopback interface, root allowed, more ranks than cores
# allowed.
peer_alone()
{
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_plm_rsh_agent=false OMPI_MCA_oob_tcp_if_include=lo OMPI_MCA_btl_tcp_if_include=lo
    export HYDRA_IFACE=lo UCX_NET_DEVICES=lo I_MPI_FABRICS=${I_MPI_FABRICS-shm}
    case $peer_kind in
    openmpi) peer_command=("$peer_launcher" --oversubscribe -np "$1") ;;
    mpich | intel) peer_command=("$peer_launcher" -launcher fork -np "$1") ;;
    *) peer_command=() ;;
    esac
    peer_command+=("$peer_worker" "${peer_words[@]}")
    [ "$peer_kind" != dist ] || peer_command+=(-n "$1")
}

# On a cluster: mpirun does not receive OMPI_MCA variables there, so they become options.
peer_cluster()
{
    local setting
    # shellcheck disable=SC2206
    peer_command=($DIST_BENCH_CLUSTER)
    case $peer_kind in
    openmpi)
        peer_command+=(--mpirun --)
        for setting in "${peer_mca[@]}"; do
            peer_command+=(--mca "${setting%%=*}" "${setting#*=}")
        done
        ;;
    dist) peer_command+=(--) ;;
    gloo) peer_command+=(--); export DIST_BENCH_INTERFACE=${DIST_BENCH_INTERFACE:-eth0} ;;
    *) echo "$peer_name: not supported on a cluster" >&2; exit 1 ;;
    esac
    peer_command+=("$peer_worker" "${peer_words[@]}")
}

# Gloo has no launcher: starts a process for each rank, with a directory for the rendezvous.
peer_ranks()
{
    local rank result pids=() status=0
    for ((rank = 0; rank < WORLD_SIZE; rank++)); do
        RANK=$rank "$peer_worker" "$peer_name" &
        pids+=($!)
    done
    trap 'kill "${pids[@]}" 2>/dev/null' TERM INT HUP
    for rank in "${!pids[@]}"; do
        wait "${pids[rank]}" || { result=$?; [ $status -ne 0 ] || status=$result; }
    done
    return $status
}

# Runs the job. It ends if dist_bench exits; the workers end with their launcher.
peer_run()
{
    local setting peer_words=("$peer_name")
    [ "$peer_kind" != dist ] || peer_words=(--worker "$peer_launcher")
    for setting in "${peer_mca[@]}"; do export "OMPI_MCA_$setting"; done
    if [ -n "${DIST_BENCH_CLUSTER-}" ]; then peer_cluster; else peer_alone "$1"; fi
    if [ "$peer_kind" != gloo ]; then
        exec setpriv --pdeathsig TERM -- "${peer_command[@]}"
    fi
    GLOO_STORE=$(mktemp -d "${TMPDIR:-/tmp}/gloo.XXXXXX") || exit 1
    export GLOO_STORE WORLD_SIZE=$1
    trap 'rm -rf "$GLOO_STORE"' EXIT
    if [ -n "${DIST_BENCH_CLUSTER-}" ]; then
        "${peer_command[@]}" &
        trap 'kill $! 2>/dev/null' TERM INT HUP
        wait $!
    else
        peer_ranks
    fi
    exit
}

peer_main()
{
    case ${1-} in
    --probe) peer_probe ;;
    [1-9]*) peer_run "$1" ;;
    *) echo "usage: $peer_name --probe | RANKS" >&2; exit 2 ;;
    esac
}
