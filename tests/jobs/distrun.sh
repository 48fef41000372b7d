#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# distrun: torchrun's variables and folders, complete output, and no process left by any kind of
# end.
JOB_LIMIT=120
. "$srcdir/tests/support/job.sh"

run=$builddir/distrun
battery=$builddir/tests/conformance/conformance
hello=$builddir/examples/hello_all_reduce

# ---- unchanged programs ----

job self 3 distrun -np 3 "$battery" gloo --brief --mode group
job self 2 distrun --nproc_per_node=2 "$builddir/train_mnist" --max-steps 2 --train-samples 128 \
    --test-samples 64 --epochs 1

# A rank that does not join ends the job; the other ranks wait for it in the agent's store.
job_fails "FAILED" self 2 distrun -n 2 "$BASH" -c \
    'if [ $RANK = 0 ]; then exec "$0" gloo --brief; else exec false; fi' "$battery"

closed()
{
    "$run" -n 2 "$hello" >&- 2>"$job_output" && "$run" -n 2 "$hello" 2>&- <&- >"$job_output" &&
        [ "$(grep -c 'rank . of 2: sum 1' "$job_output")" = 2 ]
}
job_check "standard streams that are closed" closed

# The workers print repeatedly: a pipe without a reader would kill them.
full()
{
    # shellcheck disable=SC2016
    "$run" -n 2 "$BASH" -c 'for i in {1..20}; do echo hi; sleep 0.02; done; echo "$RANK ends" >&2' \
        2>"$job_output" >/dev/full
    [ $? = 1 ] && [ "$(grep -c 'No space left' "$job_output")" = 1 ] &&
        [ "$(grep -c ' ends' "$job_output")" = 2 ]
}
job_check "lost output is reported, and the workers continue" full

# Rank 0 reads distrun's standard input, the other ranks read nothing.
input()
{
    # shellcheck disable=SC2016
    [ "$(seq 3 | "$run" -n 2 --log-line-prefix-template none sh -c 'sed "s/^/$RANK: /"' 2>/dev/null |
        tr '\n' ' ')" = '0: 1 0: 2 0: 3 ' ]
}
job_check "standard input goes to rank 0" input

# ---- variables ----

variables()
{
    local want have
    want="GROUP_RANK GROUP_WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
        OMP_NUM_THREADS RANK ROLE_NAME ROLE_RANK ROLE_WORLD_SIZE TORCHELASTIC_ERROR_FILE
        TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RESTART_COUNT TORCHELASTIC_RUN_ID
        TORCHELASTIC_SIGNALS_TO_HANDLE TORCHELASTIC_USE_AGENT_STORE
        TORCH_NCCL_ASYNC_ERROR_HANDLING WORLD_SIZE"
    have=$(env -i "PATH=$PATH" "$run" -n 2 --local-ranks-filter 1 --log-line-prefix-template none \
        env 2>/dev/null | sed 's/=.*//' | grep -vE '^(PATH|DIST_AGENT_.*|[AL]SAN_.*)$' | sort)
    # shellcheck disable=SC2086
    [ "$have" = "$(printf '%s\n' $want | sort)" ] || { echo "$have" >"$job_output"; false; }
}
job_check "torchrun's variables and no other ones" variables

from_environment()
{
    [ "$(PET_NPROC_PER_NODE=3 PET_LOCAL_RANKS_FILTER=2 PET_STANDALONE=1 "$run" \
        sh -c 'echo $RANK of $WORLD_SIZE' 2>/dev/null)" = '[2]:2 of 3' ]
}
job_check "options as PET_ variables" from_environment

no_secret_in_arguments()
{
    "$run" -n 1 --log-line-prefix-template none sh -c 'cat "$DIST_AGENT_STORE_SECRET"; echo
        tr "\0" " " </proc/$PPID/cmdline' >"$job_output" 2>&1
    local secret
    secret=$(head -n 1 "$job_output")
    [ ${#secret} = 32 ] && [ "$(grep -c "$secret" "$job_output")" = 1 ]
}
job_check "the secret is in a file, not in arguments" no_secret_in_arguments

# ---- output ----

lossless()
{
    "$run" -n 2 sh -c 'seq -f "%.0f $RANK of the lines that this worker prints" 1 200000' \
        2>/dev/null | { sleep 0.3; cat; } >"$job_folder/lines"
    for rank in 0 1; do
        seq -f "[$rank]:%.0f $rank of the lines that this worker prints" 1 200000 |
            cmp - <(grep "^\[$rank\]:" "$job_folder/lines") || return 1
    done
    [ "$(wc -l <"$job_folder/lines")" = 400000 ]
}
job_check "20 MB of lines to a slow reader are complete" lossless
gone_reader() { timeout $JOB_LIMIT "$run" -n 2 yes 2>/dev/null | head -n 1 >"$job_output"; }
job_check "a reader that exits ends the job" gone_reader

folders()
{
    "$run" -n 2 --log-dir "$job_folder/logs" --rdzv-id name -r 0:3 -t 1:1 \
        sh -c 'echo out; echo err >&2' >"$job_output" 2>/dev/null
    [ "$(cat "$job_output")" = '[1]:out' ] &&
        [ "$(cd "$job_folder/logs" && cat name_*/attempt_0/[01]/*.log | sort | uniq -c | tr -d ' \n')" = 1err2out ]
}
job_check "torchrun's folders of logs" folders

# ---- failures ----

job_fails "exitcode  : 7 (pid: " self 2 distrun -n 2 sh -c '[ $RANK = 0 ] || exit 7; sleep 50'
block()
{
    sed -e 's/2[0-9-]*_[0-9:]*/TIME/' -e 's/pid: [0-9]*/pid: PID/' -e "s/host      : .*/host      : HOST/" \
        "$job_output" | sed -n '/^=====/,$p' | diff - <(cat <<'END'
============================================================
sh FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : TIME
  host      : HOST
  rank      : 1 (local_rank: 1)
  exitcode  : 7 (pid: PID)
  error_file: <N/A>
  traceback : <N/A>: see the program's output; --tee 3 --log-dir DIR stores it in files
============================================================
END
)
}
job_check "torchrun's failure block" block
job_check "the exit code is that of the first failure" [ "$job_status" = 7 ]
signalled() { "$run" -n 2 sh -c '[ $RANK = 0 ] || kill -9 $$; sleep 50' >"$job_output" 2>&1; [ $? = 137 ]; }
job_check "128 plus the number for a signal" signalled
job_check "the signal's name" grep -q 'Signal 9 (SIGKILL) received by PID' "$job_output"
# A killed rank reports nothing, so distrun prints its last call.
last_call()
{
    local pid worker
    job_background timeout $JOB_LIMIT "$run" -n 2 "$builddir/train_mnist" --epochs 99 --log-interval 1 \
        --train-samples 640 --test-samples 64
    pid=$!
    job_until grep -q Loss "$job_output"
    worker=$(pgrep -x train_mnist -P "$(job_agent "$(pgrep -x distrun -P $pid)")" | head -n 1)
    kill -9 "$worker"
    wait $pid
    [ $? = 137 ] && grep -qE "^  exitcode  : -9 \(pid: $worker\)" "$job_output" &&
        grep -qE '^  last call : all_reduce, call [0-9]+ of group [0-9]+, [0-9]+ float(32|64)$' "$job_output"
}
job_check "the last call of a killed rank" last_call
own_words()
{
    "$run" -n 2 "$@" sh -c '[ $RANK = 0 ] && exec sleep 50
        echo "{\"message\": {\"message\": \"short\", \"extraInfo\": {\"py_callstack\": \"one\\ntwo\\n\"}}}" \
        >$TORCHELASTIC_ERROR_FILE; exit 3' >"$job_output" 2>&1
    [ $? = 3 ] && grep -A 1 '^  traceback : one$' "$job_output" | grep -q '^  two$'
}
job_check "the worker's own error" own_words
job_check "the worker's own error, also in the job's folder" own_words --log-dir "$job_folder/logs"
job self 2 distrun --max-restarts 2 -n 2 sh -c '[ $TORCHELASTIC_RESTART_COUNT = 2 ]'
job_fails "restarting all workers" self 2 distrun --max-restarts 1 -n 2 false

# ---- bad input ----

refuses()
{
    local text=$1
    shift
    timeout $JOB_LIMIT "$run" "$@" >"$job_output" 2>&1
    [ $? = 2 ] && grep -qF -- "$text" "$job_output"
}
cp /dev/null "$job_folder/data"
echo 'echo ran' >"$job_folder/headless"
echo '#!/no/such/shell' >"$job_folder/shellless"
chmod +x "$job_folder/headless" "$job_folder/shellless"
while read -r text; do
    read -r arguments
    # shellcheck disable=SC2086
    job_check "refuses $arguments: $text" refuses "$text" $arguments
done <<END
distrun cannot count XPUs
--nproc-per-node=xpu true
program 'no_such_program' not found
no_such_program
No such file or directory
/no/such/program
'$job_folder/data' is not executable
$job_folder/data
(a script begins with #!/bin/sh or the like): Exec format error
$job_folder/headless
(the interpreter in its #! line, or its loader, does not exist)
-n 2 $job_folder/shellless
unknown or ambiguous option --nope
--nope true
no program specified
-n 2
'x' is neither a number
-n x true
--nnodes must be
--nnodes 0 true
--redirects must be
-r 9 true
--tee must be
-t 0:9 true
--local-ranks-filter must be a list
--local-ranks-filter a true
'SIGNO' is not a signal
--signals-to-handle SIGNO true
END

# ---- no process is left by any kind of end ----

# ends NAME SIGNALS CODE SCRIPT...: sends signals to distrun, or to its agent ("agent:KILL"), its
# supervisor, itself and its agent at once ("both:KILL"), its process group, or a worker. Its
# standard error goes to $job_errors.
ends()
{
    local name=$1 signals=$2 code=$3 pid signal status left=no
    shift 3
    job_number=$((job_number + 1))
    job_id=$$.$job_number
    TEST_JOB=$job_id job_background timeout -k 5 $JOB_LIMIT "$run" --shutdown-timeout 1 -n 2 "$@"
    job_until grep -q 'ready' "$job_output"
    pid=$(pgrep -P $! -x distrun)
    for signal in $signals; do
        case $signal in
        group:*) kill -"${signal#group:}" -- -$(($(ps -o pgid= -p "$pid"))) ;;
        agent:*) kill -"${signal#agent:}" "$(job_agent "$pid")" ;;
        supervisor:*) kill -"${signal#supervisor:}" "$(pgrep -P "$pid" -x supervisor)" ;;
        # shellcheck disable=SC2046
        both:*) kill -"${signal#both:}" "$pid" $(job_agent "$pid") ;;
        worker:*) kill -"${signal#worker:}" "$(pgrep -P "$(job_agent "$pid")" | head -n 1)" ;;
        *) kill -"$signal" "$pid" ;;
        esac
        sleep 0.4
    done
    wait $!
    status=$?
    job_leaked && left=yes
    if [ $left = yes ]; then
        job_fail "$name" "processes left behind"
    elif [ "$status" != "$code" ]; then
        job_fail "$name" "exit $status, not $code"
    else
        job_pass "$name"
    fi
}

children='sleep 91 & setsid sleep 92 & echo ready; sleep 93'
stubborn='trap "" TERM INT; echo ready; sleep 94; sleep 95'
job_parallel ends "SIGKILL of distrun" KILL 137 sh -c "$children"
job_parallel ends "SIGKILL of the agent" agent:KILL 137 sh -c "$children"
# distrun's messages go to a pipe whose reader has exited.
unread()
{
    exec 6> >(head -n 1 >/dev/null) # the line about bound workers
    job_errors=6 ends "$@"
}
job_parallel ends "SIGKILL of the supervisor" supervisor:KILL 137 sh -c "$children"
job_parallel ends "SIGKILL of distrun and its agent" both:KILL 137 sh -c "$children"
job_parallel unread "SIGKILL of the agent, and nobody reads" agent:KILL 137 sh -c "$children"
job_parallel ends "SIGKILL of the process group" group:KILL 137 sh -c "$children"
job_parallel ends "SIGKILL of a worker with children" worker:KILL 137 sh -c "$children"
job_parallel ends "SIGTERM" TERM 143 sh -c "$children"
job_parallel ends "SIGHUP" HUP 129 sh -c "$children"
job_parallel ends "SIGINT once" INT 130 sh -c "$children"
job_parallel ends "workers that ignore SIGTERM" TERM 143 sh -c "$stubborn"
job_parallel ends "SIGINT twice" "INT INT" 130 sh -c "$stubborn"
job_parallel ends "SIGUSR1 is passed on" USR1 0 bash -c \
    'trap "exit 0" USR1; echo ready; while :; do sleep 0.05; done'
job_parallel ends "a child that a worker leaves" USR1 0 bash -c \
    'trap "" USR1; setsid sleep 96 & echo ready; sleep 0.5'
job_collect

# All three processes of distrun: none is left that could kill the processes below a worker. But
# ranks notice.
all_three()
{
    local agent
    job_number=$((job_number + 1))
    job_id=$$.$job_number
    # shellcheck disable=SC2016
    TEST_JOB=$job_id timeout -k 5 $JOB_LIMIT "$run" -n 2 sh -c '"$@" >>"$0" 2>&1; exit $?' "$job_folder/three" \
        "$builddir/train_mnist" --dummy --epochs 99 --log-interval 1 --train-samples 640 --test-samples 64 \
        >"$job_output" 2>&1 &
    job_until grep -qs "Train Epoch" "$job_folder/three"
    agent=$(job_agent "$(pgrep -P $! -x distrun)")
    # shellcheck disable=SC2046
    kill -KILL $(pgrep -P $! -x distrun) $(ps -o ppid= -p "$agent") "$agent"
    wait $!
    job_until eval '[ -z "$(job_processes)" ]'
}
[ -z "${CHECK_LONG-}" ] || job_check "SIGKILL of all three processes, with ranks below shells" all_three

# ---- several nodes, all of them on this machine ----

# nodes CODE COUNT OPTIONS...: starts COUNT agents at one endpoint, all of which must exit with
# CODE.
nodes()
{
    local code=$1 count=$2 pids=() pid wrong=0
    shift 2
    : >"$job_output"
    for ((node = 0; node < count; node++)); do
        timeout $JOB_LIMIT "$run" --nnodes "$count" ${by_rank:+--node-rank $node} "$@" >>"$job_output" 2>&1 &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do
        wait "$pid"
        [ $? = "$code" ] || wrong=1
    done
    return $wrong
}
by_rank=1 job_check "two nodes by rank" nodes 0 2 --master-port "$(job_port)" -n 2 \
    "$battery" gloo --brief --mode async
job_check "three nodes by endpoint" nodes 0 3 --rdzv-endpoint "127.0.0.1:$(job_port)" \
    "$builddir/examples/hello_all_reduce"
job_check "three nodes by endpoint: the ranks sum" [ "$(grep -c 'of 3: sum 3' "$job_output")" = 3 ]
# The agent of node 0 serves the store, so rank 0 may exit.
one_store()
{
    nodes 0 2 --rdzv-endpoint "127.0.0.1:$(job_port)" sh -c \
        'echo "store $DIST_AGENT_STORE $(cat "$DIST_AGENT_STORE_SECRET")"' &&
        [ "$(grep -oE 'store 127.0.0.1:[0-9]+ [0-9a-f]{32}$' "$job_output" | uniq -c | tr -s ' ' | cut -d ' ' -f 2)" = 2 ]
}
job_check "both nodes use one store" one_store
job_check "a failure on another node" nodes 5 2 --rdzv-endpoint "127.0.0.1:$(job_port)" -n 2 \
    sh -c '[ $RANK != 3 ] || exit 5; sleep 50'
job_check "the failure block on both nodes" [ "$(grep -c '  rank      : 3 (local_rank: 1)' "$job_output")" = 2 ]
job_check "a restart on both nodes" nodes 0 2 --rdzv-endpoint "127.0.0.1:$(job_port)" --max-restarts 1 -n 2 \
    sh -c '[ $TORCHELASTIC_RESTART_COUNT = 1 ] || { [ $RANK != 2 ] || exit 5; sleep 50; }'

# The second node is killed while it works; the first continues with a world of its own.
elastic()
{
    local port first second
    port=$(job_port)
    set -- timeout $JOB_LIMIT "$run" --nnodes 1:2 --max-restarts 1 --rdzv-endpoint "127.0.0.1:$port"
    "$@" sh -c 'echo $RANK of $WORLD_SIZE; [ $WORLD_SIZE = 1 ] || sleep 50' >"$job_output" 2>&1 &
    first=$!
    job_until job_listens "$port"
    "$@" sh -c 'echo here; sleep 50' >"$job_output.second" 2>&1 &
    second=$!
    job_until grep -q here "$job_output.second"
    kill -9 "$(pgrep -P $second -x distrun)"
    wait $second
    wait $first && grep -q '0 of 1' "$job_output" && grep -q 'of 2' "$job_output"
}
job_check "a node is lost, and the other continues" elastic

job_check "node ranks are needed" refuses "needs --node-rank" --nnodes 2 true
job_check "node ranks have a bound" refuses "must be less than the number of nodes" --nnodes 2 --node-rank 2 true
job_check "unknown keys of --rdzv-conf" refuses 'unknown --rdzv-conf key "join_timeuot"' --nnodes 2 --rdzv-endpoint 127.0.0.1 \
    --rdzv-conf join_timeuot=3 true
unreachable()
{
    timeout $JOB_LIMIT "$run" --nnodes 2 --node-rank 1 --master-port "$(job_port)" \
        --rdzv-conf join_timeout=0.3 true >"$job_output" 2>&1
    [ $? = 1 ] && grep -q 'found no agent that serves the rendezvous at 127.0.0.1' "$job_output"
}
job_check "an endpoint that cannot be reached" unreachable

# ---- launchers inside each other ----

for mpirun in mpirun.mpich mpirun.openmpi; do
    inside()
    {
        timeout $JOB_LIMIT "$run" -n 1 $mpirun -n 2 "$hello" >"$job_output" 2>&1 &&
            [ "$(grep -c 'rank . of 2: sum 1' "$job_output")" = 2 ]
    }
    # Each mpirun is a world of its own, although all see the same MASTER_PORT.
    inside_twice()
    {
        timeout 30 "$run" -n 2 $mpirun -n 2 "$hello" >"$job_output" 2>&1 &&
            [ "$(grep -c 'rank . of 2: sum 1' "$job_output")" = 4 ]
    }
    around()
    {
        timeout $JOB_LIMIT $mpirun -n 1 "$run" -n 2 "$hello" >"$job_output" 2>&1 &&
            [ "$(grep -c 'rank . of 2: sum 1' "$job_output")" = 2 ]
    }
    command -v $mpirun >/dev/null || { job_skip "$mpirun and distrun" "no $mpirun"; continue; }
    job_check "$mpirun inside distrun" inside
    job_check "two $mpirun inside distrun" inside_twice
    job_check "distrun inside $mpirun" around
done

# clash TEXT BOTH FIRST SECOND: starts two agents with these options; at least one prints TEXT, and
# both exit with 1.
clash()
{
    local text=$1 both=$2 options
    shift 2
    for options in "$@"; do
        (
            # shellcheck disable=SC2086
            timeout $JOB_LIMIT "$run" --rdzv-conf "join_timeout=${join:-30}" $both $options true
            echo "exit $?"
        ) &
    done >"$job_output" 2>&1
    wait
    [ "$(grep -c '^exit 1$' "$job_output")" = $# ] && grep -qF -- "$text" "$job_output"
}
# An agent that is not refused waits "join" seconds for the other agents.
wrong() { job_check "refused: $1" clash "$@"; }
endpoint() { echo "--rdzv-endpoint 127.0.0.1:$(job_port)"; }
job_parallel wrong "use the same values for all agents of a job" "$(endpoint)" "--nnodes 2" "--nnodes 3"
job_parallel wrong "use the same values for all agents of a job" "$(endpoint) --nnodes 2" "" "--max-restarts 2"
join=8 job_parallel wrong "use a different port for each job" "$(endpoint) --nnodes 2" "--rdzv-id a" "--rdzv-id b"
job_parallel wrong "two agents have --node-rank 1" "--nnodes 3 --master-port $(job_port)" \
    "--node-rank 0" "--node-rank 1" "--node-rank 1"
join=8 job_parallel wrong "is already in use on this machine" "--nnodes 2 --master-port $(job_port)" \
    "--node-rank 0" "--node-rank 0"
join=1 job_parallel wrong 'cannot resolve "no.such.host.invalid"' "--nnodes 2 --rdzv-endpoint no.such.host.invalid" ""
job_collect

# ---- stop and continue ----

# Prints the states of the workers and of their children, such as "TTTT".
suspended_states()
{
    local worker
    for worker in $(pgrep -P "$suspended_agent"); do
        ps -o s= -p "$worker"
        ps -o s= --ppid "$worker"
    done | tr -d ' \n'
}
suspended_all() { [ "$(suspended_states)" = "$1" ] && [ "$(ps -o s= -p "$suspended_monitor")" = "$2" ]; }
suspended_none() { [[ $(suspended_states) != *T* ]] && [ "$(ps -o s= -p "$suspended_monitor")" = S ]; }
# A child has a process group of its own; the shutdown timeout ends long before the job is
# continued.
suspended()
{
    # shellcheck disable=SC2016
    job_background "$run" --shutdown-timeout 0.2 -n 2 sh -c \
        'trap "" TERM; (trap - TERM; exec setsid sleep 60) & echo ready; wait; exit 3'
    suspended_monitor=$!
    job_until eval '[ "$(grep -c ready "$job_output")" = 2 ]'
    suspended_agent=$(job_agent $suspended_monitor)
    kill -TSTP $suspended_monitor
    job_until suspended_all TTTT T || return 1
    kill -CONT $suspended_monitor
    job_until suspended_none || return 1
    kill -TSTP $suspended_monitor
    job_until suspended_all TTTT T || return 1
    kill -TERM $suspended_monitor
    kill -CONT $suspended_monitor
    wait $suspended_monitor
    [ $? = 143 ]
}
job_check "SIGTSTP stops all processes of the job, SIGCONT continues them" suspended
job_check "workers that do not end in time are reported" grep -qE \
    '2 workers have not ended 0.2 s after the signal to end, for example rank 0 \(pid [0-9]+\): killing \(raise --shutdown-timeout' \
    "$job_output"

# ---- limits ----

# root has no limit on processes, and another user may already have processes.
process_user=(setpriv --reuid $((50000 + $$ % 10000)) --clear-groups)
process_limit()
{
    "${process_user[@]}" "$BASH" -c "ulimit -u $1 && exec \"\$@\"" limited "$run" -n 2 true \
        >"$job_output" 2>&1
    [ $? = 1 ] && grep -qF "cannot start rank $2: this user's limit on processes and threads, $1, is reached" \
        "$job_output"
}
if [ "$(id -u)" = 0 ] && "${process_user[@]}" test -x "$run" 2>/dev/null; then
    job_check "a limit on processes: the error names the rank that is not started" process_limit 5 1
fi
small_files()
{
    (ulimit -f 0 && exec timeout $JOB_LIMIT "$run" -n 2 true) 2>&1 | cat >"$job_output"
    [ "${PIPESTATUS[0]}" = 1 ] && grep -q 'raise the limit on file sizes (ulimit -f)' "$job_output" &&
        (ulimit -f 0 && DIST_AUTH=none exec timeout $JOB_LIMIT "$run" -n 2 "$hello") 2>&1 | cat >"$job_output" &&
        [ "$(grep -c 'of 2: sum 1' "$job_output")" = 2 ]
}
job_check "a limit of zero on file sizes" small_files

# ---- many, and torch ----

many() { timeout $JOB_LIMIT "$run" -n 256 true >"$job_output" 2>&1; }
job_check "256 workers" many

# All 100 have ended when the agent looks again, and only the last one has failed.
failed_among_many()
{
    local monitor agent
    job_background "$run" -n 100 sh -c 'echo ready; sleep 0.7; [ $RANK != 99 ]'
    monitor=$!
    job_until eval '[ "$(grep -c ready "$job_output")" = 100 ]'
    agent=$(job_agent $monitor) && kill -STOP "$agent" && sleep 1 && kill -CONT "$agent"
    wait $monitor
    [ $? = 1 ] && grep -q 'rank      : 99' "$job_output"
}
job_check "one failure among many ends at once" failed_among_many

few_descriptors()
{
    (ulimit -n 12 && timeout $JOB_LIMIT "$run" -n 2 true) >"$job_output" 2>&1
    [ $? = 1 ] && grep -q 'ulimit' "$job_output"
}
job_check "too few descriptors for the store" few_descriptors

python=${DIST_TEST_TORCH_PYTHON-python3}
if "$python" -c 'import torch.distributed' 2>/dev/null; then
    cat >"$job_folder/with_torch.py" <<'END'
import torch, torch.distributed as d
d.init_process_group("gloo")
x = torch.ones(1)
d.all_reduce(x)
assert x.item() == d.get_world_size()
d.destroy_process_group()
END
    PYTHON_EXEC=$(command -v "$python") job self 2 distrun -n 2 "$job_folder/with_torch.py"
else
    job_skip "a script of torch" "no torch for $python: set DIST_TEST_TORCH_PYTHON"
fi
