#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A launcher that is killed cannot kill its ranks: they must notice it themselves. $TORCHRUN as in
# ways.sh.
JOB_LIMIT=60
. "$srcdir/tests/support/job.sh"

# The ranks' output goes to a file: writing to the launcher's broken pipe would kill a rank. Each
# rank is a child of a shell, which is not the launcher.
cat >"$job_folder/rank" <<END
exec >>"\$1" 2>&1
"$builddir/train_mnist" --dummy --epochs 99 --log-interval 1 --train-samples 640 --test-samples 64 --dist-backend gloo
exit \$?
END

# begin COMMAND...: starts a training job; the launcher's process is $launcher.
begin()
{
    job_number=$((job_number + 1))
    job_id=$$.$job_number
    : >"$job_output"
    TEST_JOB=$job_id DIST_DEBUG=info "$@" "$BASH" "$job_folder/rank" "$job_output" >"$job_folder/said" 2>&1 </dev/null 9>&- &
    launcher=$!
    job_until grep -q "Train Epoch" "$job_output"
}
nobody() { [ -z "$(job_processes)" ]; }
said() { grep -qE "$1" "$job_output"; }

# killed NAME COMMAND...
killed()
{
    local name=$1
    begin "${@:2}"
    kill -KILL "$launcher"
    wait "$launcher"
    job_check "$name: its ranks exit" job_until nobody
    job_leaked
} 2>/dev/null
say_why()
{
    job_check "$1: they print the reason" said "the launcher of rank [01] \(.*, pid $launcher\) exited before the rank"
}

if [ -n "$OPENMPI_RUN" ]; then
    killed "Open MPI" "$OPENMPI_RUN" -np 2
    say_why "Open MPI"
else
    job_skip "Open MPI" "no Open MPI here"
fi
# MPICH's proxy, which the ranks monitor, kills the ranks itself.
if [ -n "$MPICH_RUN" ] && [ -n "${CHECK_LONG-}" ]; then
    killed "MPICH" "$MPICH_RUN" -launcher fork -np 2
fi
torchrun=$(type -P "${TORCHRUN:-torchrun}")
if [ -z "$torchrun" ]; then
    job_skip "torchrun" "no torchrun here: name it in TORCHRUN"
elif [ -z "${CHECK_SHORT-}" ]; then
    killed "torchrun" "$torchrun" --standalone --nproc-per-node 2 \
        --log-dir "$job_folder/logs" --no-python
    say_why "torchrun"
fi

if [ -n "${CHECK_LONG-}" ] && [ -n "$OPENMPI_RUN" ]; then
    DIST_DEBUG=info DIST_LAUNCHER_WATCH=0 job openmpi 2 examples/hello_all_reduce
    job_check "DIST_LAUNCHER_WATCH=0: the launcher is not monitored" eval '! said "when its launcher exits"'
fi
