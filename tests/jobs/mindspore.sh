#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Jobs started with MindSpore's variables: with and without a scheduler process, with and without
# MS_NODE_ID.
. "$srcdir/tests/support/job.sh"

[ -z "${CHECK_SHORT-}" ] || { job_skip "MindSpore's roles" "the other suite runs them"; exit; }

training="$builddir/train_mnist --dummy --reproducible --train-samples 600 --test-samples 60 --max-steps 3
    --epochs 1 --batch-size 60"

# ms_job SCHEDULER IDS WORKERS PROGRAM [ARGUMENT]...: SCHEDULER is first, late or none; IDS yes or
# no. Returns the first failure's exit code.
ms_job()
{
    local scheduler=$1 ids=$2 rank pids=() status=0 result
    export MS_SCHED_HOST=127.0.0.1 MS_SCHED_PORT MS_WORKER_NUM=$3
    MS_SCHED_PORT=$(job_port)
    shift 3
    trap 'kill "${pids[@]}" 2>/dev/null' TERM
    [ "$scheduler" = first ] && { MS_ROLE=MS_SCHED "$@" & pids+=($!); }
    for ((rank = 0; rank < MS_WORKER_NUM; rank++)); do
        [ "$ids" = yes ] && export MS_NODE_ID=$rank
        MS_ROLE=MS_WORKER "$@" &
        pids+=($!)
    done
    unset MS_NODE_ID
    # Not all workers can join before the scheduler starts.
    [ "$scheduler" = late ] && { sleep 0.5; MS_ROLE=MS_SCHED "$@" & pids+=($!); }
    for result in "${pids[@]}"; do
        wait "$result"
        result=$?
        [ $status -eq 0 ] && status=$result
    done
    return $status
}
export -f ms_job

hash_of() { grep "^Parameter hash: .* (3 ranks agree)" "$job_output"; }
same() { [ -n "$reference" ] && [ "$(hash_of)" = "$reference" ]; }
# shellcheck disable=SC2086
job shell 3 $training
reference=$(hash_of)
ways=("first no" "none yes")
[ -n "${CHECK_LONG-}" ] && ways+=("first yes" "late no" "none no")
for way in "${ways[@]}"; do
    # shellcheck disable=SC2086
    job self 3 "$BASH" -c 'ms_job "$@"' ms_job $way 3 $training
    job_check "scheduler: ${way% *}, MS_NODE_ID: ${way#* }: the parameters of the shell loop" same
done

# A program without support for schedulers works too; in the scheduler process it gets an error that
# explains why it has no group.
served()
{
    job_launch self 2 "$BASH" -c 'ms_job "$@"' ms_job first no 2 "$builddir/examples/hello_all_reduce"
    grep -q "rank 1 of 2: sum 1" "$job_output" &&
        grep -q "was the scheduler .* has succeeded" "$job_output" && ! job_leaked
}
job_check "any program can run the job's store" served

# lost WHOM TEXT: a worker or the scheduler is killed. The other processes exit with an error that
# names it.
lost()
{
    local port rank pids=() scheduler left result
    port=$(job_port)
    job_id=$$.lost
    local ms=(env TEST_JOB="$job_id" MS_SCHED_HOST=127.0.0.1 MS_SCHED_PORT="$port" MS_WORKER_NUM=3)
    # shellcheck disable=SC2086
    "${ms[@]}" MS_ROLE=MS_SCHED $training 9>&- >"$job_folder/scheduler" 2>&1 &
    scheduler=$!
    # Without a scheduler, rank 0 serves the store, even if a scheduler starts later.
    job_until job_listens $((port + 1)) || { kill $scheduler; return 1; }
    rm -f "$job_folder"/worker[012] # of the previous run, which trained too
    for rank in 0 1 2; do
        # shellcheck disable=SC2086
        "${ms[@]}" MS_NODE_ID=$rank MS_ROLE=MS_WORKER $training --max-steps 1000000 --epochs 100000 \
            --log-interval 1 9>&- >"$job_folder/worker$rank" 2>&1 &
        pids+=($!)
    done
    job_until grep -q "Train Epoch" "$job_folder/worker0"
    case $1 in
    worker) kill -KILL "${pids[1]}"; left=$scheduler ;;
    scheduler) kill -KILL $scheduler; left=${pids[1]} ;;
    esac
    job_until eval '! kill -0 $left' || kill "${pids[@]}" $scheduler
    wait "$left"
    result=$?
    # If two processes end at the same time, a worker may report the other worker.
    cat "$job_folder/scheduler" "$job_folder"/worker[012] >"$job_output"
    [ $result = 1 ] && grep -q "$2" "$job_output" && ! job_leaked
} 2>/dev/null
job_check "a lost worker is named" lost worker "rank 1 .* \(closed its connection\|was killed\)"
job_check "a lost scheduler is named" lost scheduler "the launcher or scheduler (.*), which holds the store, \(closed its connection\|was killed\)"

# Two schedulers: the second one gets an error when the first one ends. It has 8 s to connect.
crowded()
{
    local MS_SCHED_PORT
    MS_SCHED_PORT=$(job_port)
    export MS_SCHED_HOST=127.0.0.1 MS_SCHED_PORT MS_WORKER_NUM=2 MS_ROLE=MS_SCHED MS_CLUSTER_TIMEOUT=8
    "$builddir/examples/hello_all_reduce" >/dev/null 2>&1 9>&- &
    job_until job_listens $((MS_SCHED_PORT + 1))
    job_fails "another scheduler runs the store (127.0.0.1 port $((MS_SCHED_PORT + 1)))" self 0 examples/hello_all_reduce
    wait $!
}
job_parallel crowded
job_collect

export MS_SCHED_HOST=127.0.0.1 MS_SCHED_PORT
MS_SCHED_PORT=$(job_port)
# shellcheck disable=SC2086
{
    MS_CLUSTER_TIMEOUT=1 MS_WORKER_NUM=2 MS_ROLE=MS_SCHED \
        job_fails "waited 1000 ms for all 2 workers, but only 0 have joined; missing: rank 0, 1" self 0 $training
    MS_CLUSTER_TIMEOUT=1 MS_WORKER_NUM=2 MS_NODE_ID=1 MS_ROLE=MS_WORKER \
        job_fails "within 1000 ms" self 0 $training
    MS_WORKER_NUM=2 MS_ROLE=MS_PSERVER job_fails "set it to MS_WORKER" self 0 $training
    MS_ROLE=MS_SCHED job_fails "MS_WORKER_NUM is not set" self 0 $training
    MS_WORKER_NUM=1 MS_ROLE=MS_SCHED job self 0 $training
    unset MS_SCHED_HOST
    MS_WORKER_NUM=2 MS_ROLE=MS_SCHED job_fails "MS_SCHED_HOST is not set" self 0 $training
}
