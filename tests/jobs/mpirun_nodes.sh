#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# mpirun over two hosts, which are network namespaces: backends gloo and mpi, without MASTER_ADDR.
. "$srcdir/tests/support/job.sh"

[ -z "${CHECK_SHORT-}" ] || { job_skip "mpirun over hosts" "the other suite runs it"; exit; }
job_needs_modules

cluster=$srcdir/bench/netns-cluster
[[ $cluster == /* ]] || cluster=$PWD/$cluster
if ! "$cluster" true 2>"$job_folder/why"; then
    job_skip "mpirun over hosts" "$(tail -n 1 "$job_folder/why")"
    exit
fi

training="$builddir/train_mnist --dummy --reproducible --train-samples 400 --test-samples 40 --max-steps 3
    --epochs 1 --batch-size 60"
hash_of() { sed -n 's/^Parameter hash: \([0-9a-f]*\) (4 ranks agree).*/\1/p' "$job_output"; }
same() { [ -n "$reference" ] && [ "$(hash_of)" = "$reference" ]; }
# shellcheck disable=SC2086
job shell 4 $training
reference=$(hash_of)

# over_hosts NAME COMMAND...: two ranks on each of two hosts.
over_hosts()
{
    job self 4 "$cluster" "${@:2}"
    case $job_status in
    77) ;;
    *) job_check "$1: the parameters of the shell loop" same ;;
    esac
}

# MPICH's mpirun on the first host enters the other host with this instead of ssh. The cluster's own
# variables, which set ranks and addresses, are removed.
cat >"$job_folder/agent" <<END
#!$BASH
exec "$BASH" "$cluster" --enter "\$1" "\${@:2}"
END
cat >"$job_folder/mpich" <<END
[ \$RANK = 0 ] || exit 0
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT HYDRA_IFACE UCX_NET_DEVICES
exec "$MPICH_RUN" -launcher rsh -launcher-exec "$job_folder/agent" -iface eth0 \
    -hosts node0:2,node1:2 -np 4 "\$@"
END
chmod +x "$job_folder/agent"

five=${DIST_BENCH_PEERS:-$HOME/.cache/libdist/peers}/openmpi5.venv/bin/mpirun
by_pmix() { [ "$(grep -c "meets the other ranks through the launcher's PMIx" "$job_output")" = 4 ]; }
# shellcheck disable=SC2086
if [ -x "$five" ]; then
    OPENMPI_RUN=$five over_hosts "Open MPI 5, gloo" --mpirun -k 2 -n 2 -- -x DIST_DEBUG=info $training \
        --dist-backend gloo
    job_check "Open MPI 5: through its PMIx" by_pmix
else
    job_skip "Open MPI 5" "not made by bench/peers/setup"
fi
# shellcheck disable=SC2086
if [ -n "${CHECK_LONG-}" ] && [ -n "$OPENMPI_RUN" ]; then
    over_hosts "Open MPI, gloo, by its MPI" --mpirun -k 2 -n 2 -- -x DIST_PMIX=0 $training \
        --dist-backend gloo
    over_hosts "Open MPI, gloo, by its PMIx" --mpirun -k 2 -n 2 -- -x DIST_DEBUG=info $training \
        --dist-backend gloo
    job_check "Open MPI: through its PMIx" by_pmix
fi

for backend in gloo mpi; do
    # shellcheck disable=SC2086
    if [ -n "$OPENMPI_RUN" ]; then
        over_hosts "Open MPI, $backend" --mpirun -k 2 -n 2 -- $training --dist-backend $backend
    else
        job_skip "Open MPI, $backend" "no Open MPI here"
    fi
    # shellcheck disable=SC2086
    if [ -n "$MPICH_RUN" ]; then
        over_hosts "MPICH, $backend" -k 2 "$BASH" "$job_folder/mpich" $training \
            --dist-backend $backend
    else
        job_skip "MPICH, $backend" "no MPICH here"
    fi
done
