#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A training on three nodes, one of which is lost repeatedly in the middle of a step and rejoins. It
# must end like an undisturbed training, without a lost sample.
. "$srcdir/tests/support/job.sh"

cluster=$srcdir/bench/netns-cluster
[[ $cluster == /* ]] || cluster=$PWD/$cluster
if ! grep -q '^#define HAVE_JANSSON' "$builddir/config.h"; then
    job_skip "elastic training" "built without jansson: no checkpoints"
    exit 0
fi
if ! "$cluster" true 2>"$job_folder/why"; then
    job_skip "elastic training" "$(tail -n 1 "$job_folder/why")"
    exit
fi

# A batch that two and three ranks can divide, so that each step has the same number of samples.
export batch=60 samples=720 epochs=2
# How node 2 is lost, in turn; in the long form more often, at any moment.
export losses="monitor cut"
if [ -n "${CHECK_LONG-}" ]; then
    samples=1800 epochs=6 losses="monitor agent cut first worker monitor first cut agent cut"
fi
export elastic_run=$builddir/distrun elastic_program=$builddir/train_mnist
export log=$job_folder/log file=$job_folder/kept
export training="--epochs $epochs --train-samples $samples --batch-size $batch --test-samples 200
    --dist-backend gloo --log-interval 1"
export agents="--nnodes 2:3 --max-restarts 20 --rdzv-endpoint node0 --rdzv-id elastic --shutdown-timeout 1
    --rdzv-conf join=now,last_call_timeout=5,join_timeout=20,keep_alive_interval=0.6,keep_alive_max_attempt=5"

export -f job_agent

# The script of a host.
cat >"$job_folder/host" <<'END'
#!/bin/bash
start() { NODE=$log.$RANK exec "$elastic_run" $agents "$elastic_program" $training --checkpoint "$file" --checkpoint-interval 3; }
# Prints the number of steps made; rank 0 is on node 0.
steps() { grep -c "Train Epoch" "$log"; }
# until_steps MORE: waits for that many steps, at most until the training ends.
until_steps()
{
    local want=$(($(steps) + $1))
    until [ $(steps) -ge $want ] || grep -q Final "$log"; do sleep 0.02; done
}
left() { grep -lsz "^NODE=$log.$RANK\$" /proc/[0-9]*/environ | tr -dc "0-9\n"; }
wait_exited() { for try in $(seq 200); do [ -z "$(left)" ] && return; sleep 0.1; done; echo "left: $(left)"; }
# Prints the process of rank 0: processes of all hosts are visible here.
first()
{
    for worker in $(pgrep -x train_mnist); do
        grep -qsz "^NODE=$log" "/proc/$worker/environ" &&
            grep -qsz "^RANK=0$" "/proc/$worker/environ" && echo "$worker"
    done
}
lose()
{
    case $1 in
    monitor) kill -9 $pid ;;
    agent) kill -9 "$(job_agent $pid)" ;;
    worker) kill -9 $(pgrep -x train_mnist -P "$(job_agent $pid)"); return ;;
    first) kill -9 $(first); return ;;
    cut) ip link set eth0 down ;;
    esac
    wait $pid
    echo "lost by $1: exit $?"
    wait_exited
    ip link set eth0 up
    until_steps 4
    start & pid=$!
}
case $RANK in
0)  (start) >"$log" 2>&1
    echo "exit $?"
    wait_exited
    # Processes of the other hosts may still be exiting.
    while grep -qsz "^NODE=$log" /proc/[0-9]*/environ; do sleep 0.05; done
    ss -Htln
    ls -A /dev/shm ;;
1)  (start) >/dev/null
    echo "exit $?"
    wait_exited ;;
2)  start & pid=$!
    until [ -e "$file" ]; do sleep 0.05; done
    for loss in $losses; do
        until_steps $((RANDOM % 4 + 1))
        sleep 0.0$((RANDOM % 10))
        lose $loss >&3
    done
    wait $pid
    echo "exit $?" >&3
    wait_exited >&3 ;;
esac 3>&1 2>"$log.$RANK"
[ $RANK = 2 ] || exit 0
END
chmod +x "$job_folder/host"

accuracy() { sed -n 's/.*Final: accuracy \([0-9]*\).*/\1/p' "$1"; }
says() { grep -q "^\[$1\] $2" "$job_output"; }
# Each step of each epoch was made; after a restart the next step is that after the checkpoint's.
accounted()
{
    awk -v batch=$batch -v samples=$samples -v epochs=$epochs '
        /=> resuming from/ {
            match($0, /: [0-9]+ epochs? and [0-9]+ samples?, [0-9]+ step/)
            split(substr($0, RSTART + 2, RLENGTH), word, " ")
            done = word[1] * samples + word[4]
            if (RSTART == 0 || done != word[6] * batch) { print "not accounted: " $0; bad = 1 }
            if (done > made || made - done > 4 * batch) { print "after " made ": " $0; bad = 1 }
            at = done
        }
        /Train Epoch/ {
            match($0, /Epoch: [0-9]+ \[[0-9]+/)
            split(substr($0, RSTART + 7, RLENGTH), word, /[^0-9]+/)
            here = (word[1] - 1) * samples + word[2]
            if (here != at) { print "at " at " comes " $0; bad = 1 }
            at = here + batch
            if (at > made) made = at
        }
        END { exit bad || made != epochs * samples }' "$log"
}

# shellcheck disable=SC2086
job self 2 distrun -n 2 "$elastic_program" $training
whole=$(accuracy "$job_output")
job self - "$cluster" -k 3 -g 10 --label "$job_folder/host"
cp "$job_output" "$job_folder/hosts"
for node in 0 1 2; do
    job_check "node $node succeeds" says $node "exit 0"
done
count() { grep -c "$1" "$2"; }
wanted=$(wc -w <<<"$losses")
away=$(tr ' ' '\n' <<<"$losses" | grep -cvE 'worker|first')
job_check "node 2 was lost $away times" [ "$(count '^\[2\] lost by' "$job_output")" = "$away" ]
cp "$log" "$job_output"
job_check "training continued each time" [ "$(count 'resuming from' "$log")" -ge "$wanted" ]
job_check "node 2 takes part at the end" grep -q '3 ranks$' <(grep Final "$log")
job_check "each sample of each epoch is accounted for" accounted
job_check "the accuracy equals that without losses, $whole %" \
    [ "$(($(accuracy "$log") - ${whole:-0}))" -ge -10 -a "$(($(accuracy "$log") - ${whole:-0}))" -le 10 ]
cp "$job_folder/hosts" "$job_output"
# Processes, listening sockets, files in /dev/shm.
job_check "nothing is left on any node" [ "$(grep -cvE '^\[[012]\] (exit 0|lost by .*)$' "$job_output")" = 0 ]
