#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The same training with each way to start it on one machine ends with equal parameters.
# mindspore.sh and slurm.sh have further ways. torchrun is $TORCHRUN or that of PATH.
. "$srcdir/tests/support/job.sh"

[ -z "${CHECK_SHORT-}" ] || { job_skip "every way" "the other suite runs them"; exit; }

training=("$builddir/train_mnist" --dummy --reproducible --train-samples 400 --test-samples 40 --max-steps 3
    --epochs 1 --batch-size 60)
hash_of() { sed -n 's/^Parameter hash: \([0-9a-f]*\) (4 ranks agree).*/\1/p' "$job_output"; }
same() { [ -n "$reference" ] && [ "$(hash_of)" = "$reference" ]; }

# way NAME LAUNCHER RANKS PROGRAM [ARGUMENT]...
way()
{
    job "${@:2}"
    case $job_status in
    '' | 77) ;;
    *) job_check "$1: the parameters of the shell loop" same ;;
    esac
}

job shell 4 "${training[@]}"
reference=$(hash_of)

# A loop that sets only LOCAL_RANK.
local_loop()
{
    local rank pids=() status=0
    export WORLD_SIZE=4 MASTER_PORT
    MASTER_PORT=$(job_port)
    for rank in 0 1 2 3; do
        LOCAL_RANK=$rank "$@" &
        pids+=($!)
    done
    for rank in "${pids[@]}"; do
        wait "$rank" || status=1
    done
    return $status
}
export -f local_loop
way "LOCAL_RANK alone" self 4 "$BASH" -c 'local_loop "$@"' local_loop "${training[@]}"

way "spawn" self 4 "${training[@]}" --multiprocessing-distributed --world-size 4
way "Open MPI, gloo" openmpi 4 "${training[@]}" --dist-backend gloo
way "MPICH, gloo" mpich 4 "${training[@]}" --dist-backend gloo
if job_has_modules; then
    way "Open MPI, mpi" openmpi 4 "${training[@]}" --dist-backend mpi
    way "MPICH, mpi" mpich 4 "${training[@]}" --dist-backend mpi
fi

# torchrun itself: one agent, and two that meet each other.
torchrun=$(type -P "${TORCHRUN:-torchrun}")
if [ -z "$torchrun" ]; then
    job_skip "torchrun" "no torchrun here: name it in TORCHRUN"
    exit
fi
agents()
{
    local agent pids=() status=0 port
    port=$(job_port)
    for agent in 0 1; do
        "$0" --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint "127.0.0.1:$port" \
            --rdzv-id ways --log-dir "$job_folder/logs" --local-addr 127.0.0.1 --no-python "$@" &
        pids+=($!)
    done
    for agent in "${pids[@]}"; do
        wait "$agent" || status=1
    done
    return $status
}
export -f agents
export job_folder # torchrun's logs go to its current folder by default
way "torchrun" self 4 "$torchrun" --standalone --nproc-per-node 4 --log-dir "$job_folder/logs" \
    --no-python "${training[@]}"
way "torchrun, a fixed port" self 4 "$torchrun" --nproc-per-node 4 --master-port "$(job_port)" \
    --log-dir "$job_folder/logs" --no-python "${training[@]}"
way "torchrun, two agents" self 4 "$BASH" -c 'agents "$@"' "$torchrun" "${training[@]}"
