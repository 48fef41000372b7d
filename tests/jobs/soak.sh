#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A long training on two agents. A worker or the second agent is killed repeatedly, and the job continues
# from the last checkpoint. Each sample must be accounted for, and the resources of the agent that stays
# must not grow: memory, descriptors, files, processes.
#
#   SOAK_SECONDS=N    duration (20; an hour in the long form)
#   SOAK_SEED=N       determines what is killed, and when
. "$srcdir/tests/support/job.sh"

JOB_LIMIT=60
seconds=20 least=1 most=4
[ -z "${CHECK_SHORT-}" ] || seconds=10
[ -z "${CHECK_LONG-}" ] || seconds=3600 least=5 most=30
seconds=${SOAK_SECONDS:-$seconds}
if ! grep -q '^#define HAVE_JANSSON' "$builddir/config.h"; then
    job_skip "soak" "built without jansson: no checkpoints"
    exit 0
fi
seed=${SOAK_SEED:-$RANDOM}
RANDOM=$seed
echo "# for $seconds s, a kill every $least to $most s: SOAK_SECONDS=$seconds SOAK_SEED=$seed"

log=$job_folder/log samples=$job_folder/samples kept=$job_folder/kept
batch=60 set=600 interval=5
# Makes steps slow without much CPU time.
export DIST_FAULT='slow:*@*:time=20ms' DIST_TIMEOUT=60 DIST_TUNING=off
export TMPDIR=$job_folder/temporary
mkdir "$TMPDIR"
training=(--arch mlp --epochs 1000000 --train-samples $set --batch-size $batch --test-samples 100
    --dist-backend gloo --log-interval 1 --checkpoint "$kept" --checkpoint-interval $interval)
agents=(--nnodes 1:2 --nproc-per-node 1 --max-restarts 100000 --rdzv-id soak --shutdown-timeout 1
    --rdzv-endpoint "127.0.0.1:$(job_port)"
    --rdzv-conf "join=now,last_call_timeout=2,join_timeout=20,keep_alive_interval=2,keep_alive_max_attempt=5")

# start NAME: starts an agent; its monitor's process number is in $started.
start()
{
    NODE=$1.$$ SOAK=$$ "$builddir/distrun" "${agents[@]}" "$builddir/train_mnist" "${training[@]}" \
        >>"$log" 2>>"$log.$1" </dev/null 7>&- 9>&- &
    started=$!
}
# processes MARK: prints the processes that have MARK in their environment.
processes() { grep -lsz "^$1\$" /proc/[0-9]*/environ | tr -dc '0-9\n'; }
worker() { for one in $(processes "NODE=$1.$$"); do [ "$(<"/proc/$one/comm")" != train_mnist ] || echo "$one"; done 2>/dev/null; }
steps() { grep -cs "Train Epoch" "$log"; }
made() { [ "$(steps)" -ge "$1" ]; }
all_exited() { [ -z "$(processes "$1")" ]; }
# Both agents have their worker.
all_work() { [ "$(worker first | wc -l) $(worker second | wc -l)" = "1 1" ]; }

lose()
{
    case $1 in
    0) kill -KILL $(worker first) ;;
    1) kill -KILL $(worker second) ;;
    2) kill -KILL "$(job_agent "$second")" ;;
    3) kill -KILL "$second" ;;
    esac 2>/dev/null
    [ "$1" -ge 2 ] || return 0
    wait "$second"
    job_until all_exited "NODE=second.$$" || return
    sleep 0.$((RANDOM % 10))
    start second
    second=$started
} 2>/dev/null

files() { find "$TMPDIR" -mindepth 1; find /dev/shm -name '*dist*' -o -name 'train*'; }

# Records the resources of the first agent and its monitor: KiB, descriptors; and the files and
# processes of all.
sample()
{
    local pid kib=0 descriptors=0
    for pid in "$first" "$(job_agent "$first")"; do
        kib=$((kib + $(awk '$1 == "VmRSS:" { print $2 }' "/proc/$pid/status")))
        descriptors=$((descriptors + $(find "/proc/$pid/fd" -mindepth 1 | wc -l)))
    done
    echo "$((SECONDS - job_start)) $kib $descriptors $(files | wc -l) $(processes "SOAK=$$" | wc -l)" >>"$samples"
}

# All agents meet at the first agent, which is never killed.
start first
first=$started
job_check "training begins and writes a checkpoint" job_until [ -e "$kept" ]
start second
second=$started
job_check "the second agent joins" job_until all_work
end=$((SECONDS + seconds)) kills=0 well=yes
while [ $SECONDS -lt $end ]; do
    sleep $((least + RANDOM % (most - least + 1))).$((RANDOM % 10))
    what=$((RANDOM % 4))
    before=$(steps)
    lose $what && job_until made $((before + 3)) && job_until all_work || { well=no; break; }
    kills=$((kills + 1))
    sleep 0.3
    sample
done
[ $well = yes ] || tail -n 5 "$log.first" "$log.second"
job_check "training continued after each of $kills kills (the last was of kind $what)" [ $well = yes ]
kill -TERM "$second" "$first" 2>/dev/null
wait "$second" "$first" 2>/dev/null
job_check "no process is left" job_until all_exited "SOAK=$$"
job_check "no file is left: $(ls -A "$TMPDIR" | head -n 3)" [ -z "$(ls -A "$TMPDIR")" ]

# Each step was made, in order; after a kill the next step is that after the checkpoint's.
accounted()
{
    awk -v batch=$batch -v set=$set -v most=$(((2 * interval + 4) * batch)) '
        /=> resuming from/ {
            match($0, /: [0-9]+ epochs? and [0-9]+ samples?, [0-9]+ step/)
            split(substr($0, RSTART + 2, RLENGTH), word, " ")
            done = word[1] * set + word[4]
            if (RSTART == 0 || done != word[6] * batch) { print "not accounted: " $0; bad = 1 }
            if (done > made || made - done > most) { print "after " made ": " $0; bad = 1 }
            at = done
        }
        /Train Epoch/ {
            match($0, /Epoch: [0-9]+ \[[0-9]+/)
            split(substr($0, RSTART + 7, RLENGTH), word, /[^0-9]+/)
            here = (word[1] - 1) * set + word[2]
            if (here != at) { print "at " at " comes " $0; bad = 1 }
            at = here + batch
            if (at > made) made = at
        }
        END { print "      " made " samples"; exit bad || made == 0 }' "$log"
}
job_output=$log
job_check "each sample of each epoch is accounted for" accounted
job_check "training continued from its checkpoint each time" [ "$(grep -c 'resuming from' "$log")" -ge $kills ]
sed 's/^/      seconds, KiB, descriptors, files, processes: /' <(head -n 1 "$samples"; tail -n 1 "$samples")
# grows COLUMN MORE: the last third of the samples exceeds the first third, without the first
# sample, by more than MORE.
grows()
{
    awk -v column="$1" -v more="$2" '{ all[NR] = $column }
        END { for (i = 2; i <= 1 + NR / 3; i++) if (all[i] > early) early = all[i]
              for (i = NR - int(NR / 3) + 1; i <= NR; i++) if (all[i] > late) late = all[i]
              exit !(late > early + more) }' "$samples"
}
job_check "the memory of the remaining agent does not grow" eval '! grows 2 1024'
job_check "the descriptors of the remaining agent do not increase" eval '! grows 3 0'
job_check "the files do not increase" eval '! grows 4 0'
job_check "the processes do not increase" eval '! grows 5 0'
