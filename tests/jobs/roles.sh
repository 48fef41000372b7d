#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# distrun --role mindspore: the variables of scheduler and workers, and every way in which they can
# end.
. "$srcdir/tests/support/job.sh"

roles=("$builddir/distrun" --shutdown-timeout 5 --role mindspore)
hello=$builddir/examples/hello_all_reduce
training=("$builddir/train_mnist" --dummy --reproducible --train-samples 600 --test-samples 60 --epochs 1 --batch-size 60)
short=("${training[@]}" --max-steps 3)
long=("${training[@]}" --max-steps 1000000 --epochs 100000 --log-interval 1)
export DIST_TIMEOUT=100

hash_of() { grep -oh "Parameter hash: .*" "$1"; }
ended_with() { [ "$job_status" = "$1" ]; }
says() { grep -q -- "$1" "$job_output"; }

# ---- variables ----

# has WHO LINE...: a process has exactly these of the variables that identify it.
has()
{
    local who=$1
    shift
    [ "$(sed -n "s/^\[$who\]://p" "$job_output" | grep -E '^(MS_.*|RANK|LOCAL_RANK|ROLE_RANK)=' | sort)" = \
        "$(printf '%s\n' "$@" | sort)" ]
}
variables()
{
    local port job=()
    port=$(job_port)
    RANK=7 LOCAL_RANK=7 ROLE_RANK=7 MS_NODE_ID=7 MS_ROLE=MS_PSERVER MS_WORKER_NUM=9 MS_SCHED_HOST=none \
        job self 2 "${roles[@]}" -n 2 --master-port "$port" env
    job=(MS_SCHED_HOST=127.0.0.1 "MS_SCHED_PORT=$port" MS_WORKER_NUM=2)
    job_check "the scheduler's variables" has scheduler MS_ROLE=MS_SCHED "${job[@]}"
    job_check "a worker's variables" has 1 MS_ROLE=MS_WORKER MS_NODE_ID=1 RANK=1 LOCAL_RANK=1 ROLE_RANK=1 \
        "${job[@]}"
}

# ---- jobs ----

trained()
{
    job self 2 distrun -n 2 "${short[@]}"
    cp "$job_output" "$job_folder/reference"
    job self 3 "${roles[@]}" -n 2 "${short[@]}"
    job_check "the parameters equal those without a scheduler" [ "$(hash_of "$job_output")" = \
        "$(hash_of "$job_folder/reference")" ]
}

# A program without support for schedulers exits with 1 in the scheduler process.
unaware()
{
    job self 2 "${roles[@]}" -n 2 "$hello"
    job_check "the workers succeed" says '^\[1\]:rank 1 of 2: sum 1$'
    job_check "the scheduler's error names its role" says '^\[scheduler\]:.*was the scheduler .* has succeeded'
}
# A scheduler process that exits at once leaves that role to distrun.
idle()
{
    # shellcheck disable=SC2016
    DIST_TIMEOUT=10 job self 2 "${roles[@]}" -n 2 sh -c '[ "$MS_ROLE" != MS_SCHED ] || exit 0; exec "$@"' sh "$hello"
    job_check "the ranks join without a scheduler" says '^\[1\]:rank 1 of 2: sum 1$'
}
# The scheduler reports a rank that exits without leaving; the workers have exited with 0.
rude() { job self 2 "${roles[@]}" -n 2 "$builddir/tests/jobs/mishap" gloo exit 1; }
alone() { job self 1 "${roles[@]}" "${short[@]}"; }

# MindSpore's variables alone contain everything that is needed.
known()
{
    # shellcheck disable=SC2016
    job self 2 "${roles[@]}" -n 2 sh -c 'exec env -i $(env | grep ^MS_) "$@"' sh "${short[@]}"
    job_check "MindSpore's variables alone suffice" says 'Parameter hash: .* (2 ranks agree)'
}

folders()
{
    job self 2 "${roles[@]}" -n 2 --log-dir "$job_folder/logs" --rdzv-id name -r 3 sh -c 'echo "$MS_ROLE"'
    job_check "the scheduler has a log folder" grep -qx MS_SCHED "$job_folder"/logs/name_*/attempt_0/scheduler/stdout.log
    job_check "a worker has a log folder" grep -qx MS_WORKER "$job_folder"/logs/name_*/attempt_0/1/stdout.log
    job self 2 "${roles[@]}" -n 2 --local-ranks-filter 1 sh -c 'echo "$MS_ROLE"'
    job_check "a list of workers excludes the scheduler" [ "$(grep MS_ "$job_output")" = '[1]:MS_WORKER' ]
}

# ---- failures ----

failing()
{
    # shellcheck disable=SC2016
    job_fails "rank      : 1 (local_rank: 1)" self 2 "${roles[@]}" -n 2 \
        sh -c '[ "$MS_NODE_ID" != 1 ] || exit 7; exec "$@"' sh "$hello"
    job_check "a worker's exit code" ended_with 7
}
# The process that has waited longest reports it: the scheduler or the other worker.
absent()
{
    # shellcheck disable=SC2016
    MS_CLUSTER_TIMEOUT=5 job_fails "rank 1" self 2 \
        "${roles[@]}" -n 2 sh -c '[ "$MS_NODE_ID" != 1 ] || exec sleep 50; exec "$@"' sh "$hello"
}
wrong() { MS_CLUSTER_TIMEOUT=soon job_fails 'MS_CLUSTER_TIMEOUT' self 2 "${roles[@]}" -n 2 "$hello"; }
again()
{
    # shellcheck disable=SC2016
    job self 2 "${roles[@]}" -n 2 --max-restarts 1 \
        sh -c '[ "$TORCHELASTIC_RESTART_COUNT$MS_ROLE" != 0MS_SCHED ] || exit 9; exec "$@"' sh "$hello"
    job_check "a failure of the scheduler causes a restart" \
        says 'the scheduler (pid [0-9]*) ended with exit code 9: restarting all workers'
    job_check "the restarted job succeeds" says 'rank 0 of 2: sum 1'
}

# Prints the process of the job that has this variable.
process_with()
{
    local pid
    for pid in $(job_processes); do
        grep -qsz "^$1\$" "/proc/$pid/environ" && echo "$pid"
    done
}

# killed NAME CODE WHOM TEXT: a process of a working job is killed. WHOM is a variable in its
# environment, or distrun.
killed()
{
    local name=$1 code=$2 whom=$3 text=$4 left=no pid
    job_number=$((job_number + 1))
    job_id=$$.$job_number
    TEST_JOB=$job_id job_background timeout -k 5 $JOB_LIMIT "${roles[@]}" -n 2 "${long[@]}"
    job_until grep -q "Train Epoch" "$job_output"
    [ "$whom" = distrun ] && pid=$(pgrep -P $! -x distrun) || pid=$(process_with "$whom")
    kill -KILL "$pid"
    wait $!
    job_status=$?
    job_leaked && left=yes
    job_check "$name: exit code $code" ended_with "$code"
    job_check "$name: no process is left" [ $left = no ]
    [ -z "$text" ] || job_check "$name: named" says "$text"
} 2>/dev/null
# The agent sees three exits at once: of a worker that failed, and of the other worker and the
# scheduler, which lost it and precede it in every list.
cause()
{
    local agent
    # shellcheck disable=SC2016
    job_background timeout $JOB_LIMIT "${roles[@]}" -n 2 \
        sh -c '[ "$RANK" = 1 ] || exec "$@"; "$@"; exit 5' sh "${long[@]}"
    job_until grep -q "Train Epoch" "$job_output"
    agent=$(job_agent "$(pgrep -P $! -x distrun)")
    kill -STOP "$agent"
    pkill -KILL -P "$(pgrep -x sh -P "$agent")"
    job_until eval '[ "$(ps -o stat= --ppid '"$agent"' | grep -c Z)" = 3 ]'
    kill -CONT "$agent"
    wait $!
    job_check "of three failures the cause is reported: exit code 5" [ $? = 5 ]
    job_check "its rank is reported" says 'rank      : 1 (local_rank: 1)'
}
job_parallel variables
job_parallel unaware
job_parallel idle
job_parallel failing
job_parallel wrong
job_parallel killed "SIGKILL of the scheduler" 137 MS_ROLE=MS_SCHED 'rank      : scheduler (local_rank: scheduler)'
if [ -z "${CHECK_SHORT-}" ]; then
    job_parallel killed "SIGKILL of a worker" 137 MS_NODE_ID=1 'rank      : 1 (local_rank: 1)'
    job_parallel trained
    job_parallel folders
    job_parallel again
    job_parallel cause
fi
job_collect
[ -n "${CHECK_LONG-}" ] || exit 0
job_parallel alone
job_parallel known
job_parallel rude
job_parallel absent
job_parallel killed "SIGKILL of distrun" 137 distrun ''
job_collect

# ---- several nodes ----

# The scheduler is on the first host.
cat >"$job_folder/ssh" <<'END'
#!/bin/sh
shift
exec "$@"
END
chmod +x "$job_folder/ssh"
hosts=(--remote-shell "$job_folder/ssh" -H "127.0.0.1:2,localhost:2")
job self 4 "${roles[@]}" "${hosts[@]}" "$hello"
job_check "one scheduler for all hosts" [ "$(grep -c '^\[scheduler\]:.*was the scheduler' "$job_output")" = 1 ]
job_check "all workers succeed" says 'rank 3 of 4: sum 6'
# shellcheck disable=SC2016
job_fails "rank      : 3 (local_rank: 1)" self 4 "${roles[@]}" "${hosts[@]}" \
    sh -c '[ "$MS_NODE_ID" != 3 ] || exit 7; exec "$@"' sh "$hello"

. "$srcdir/tests/support/nodes.sh"
if ! node_make 2>"$job_folder/why"; then
    job_skip "two machines" "$(tail -n 1 "$job_folder/why")"
    exit
fi
# machines CODE COMMAND...: runs it on two machines.
machines()
{
    local code=$1 port there
    shift
    port=$(job_port)
    set -- timeout $JOB_LIMIT "${roles[@]}" --nnodes 2 -n 2 --rdzv-endpoint "$node_here:$port" "$@"
    job_id=$$.machines
    TEST_JOB=$job_id ip netns exec "$node_name" "$@" >"$job_folder/there" 2>&1 &
    there=$!
    TEST_JOB=$job_id "$@" >"$job_output" 2>&1
    job_status=$?
    wait $there
    [ "$job_status $?" = "$code $code" ] && ! job_leaked
}
job_check "two machines" machines 0 "${short[@]}"
job_check "the parameters of both machines agree" says 'Parameter hash: .* (4 ranks agree)'
# shellcheck disable=SC2016
job_check "a worker of the second machine fails" machines 7 \
    sh -c '[ "$MS_NODE_ID" != 3 ] || { sleep 1; exit 7; }; exec "$@"' sh "${long[@]}"
job_check "the worker is named on the first machine" says 'rank      : 3 (local_rank: 1)'
# shellcheck disable=SC2016
job_check "the scheduler is killed" machines 137 \
    sh -c '[ "$MS_ROLE" != MS_SCHED ] || { sleep 1; kill -9 $$; }; exec "$@"' sh "${long[@]}"
job_check "the scheduler is named on the second machine" grep -q 'rank      : scheduler' "$job_folder/there"
