#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The conformance tests against backend ucx: over shared memory and UCX, and over UCX alone, with
# its TCP and its shared memory; a rank that is killed; and training.
. "$srcdir/tests/support/job.sh"

battery=tests/conformance/conformance
brief=--brief
[ -n "${CHECK_LONG-}" ] && brief= JOB_LIMIT=900

[ -e "$builddir/.libs/dist_ucx.so" ] || { job_skip ucx "the ucx module was not built"; exit 77; }
export UCX_LOG_LEVEL=fatal

# ucx RANKS [OPTION]...
ucx() { job self "$1" $battery ucx --spawn "$@" $brief; }

# Shared memory carries all messages of a machine, unless it is excluded.
ranks_list="1 2 3"
[ -z "${CHECK_LONG-}" ] || ranks_list="1 2 3 4 8"
[ -z "${CHECK_SHORT-}" ] || ranks_list="1 4"
for ranks in $ranks_list; do
    modes=(all all)
    [ "$ranks" -lt 4 ] || modes=(group "flood async")
    [ -z "${CHECK_LONG-}" ] || modes=(all all)
    [ "$ranks" = 3 ] || ucx "$ranks" --mode "${modes[0]}"
    for mode in ${modes[1]}; do
        [ "$ranks" = 1 ] || UCX_TLS=tcp,self DIST_TRANSPORT=ucx ucx "$ranks" --mode "$mode"
    done
done
UCX_TLS=tcp,sm,self DIST_TRANSPORT=ucx ucx 3 --mode group
# Messages that the receiver fetches, with all transports of UCX.
UCX_RNDV_THRESH=0 UCX_ZCOPY_THRESH=auto DIST_TRANSPORT=ucx ucx 2 --mode async

# UCX prints what a killed rank leaves behind; every other rank gets an error.
JOB_LIMIT=90
export DIST_TRANSPORT=ucx
for kind in kill kill-in exit count dtype op; do
    job shell 4 tests/jobs/mishap ucx $kind 2
done
job_parallel job shell 3 tests/jobs/mishap ucx kill-fork 0
job_parallel job shell 3 tests/jobs/mishap ucx silent 1
job_collect
unset DIST_TRANSPORT

# Training over ucx must end with gloo's parameters, with any launcher.
result_of() { grep -o 'Parameter hash: .*\|Final: accuracy [^|]*' "$job_output"; }
# train LAUNCHER RANKS BACKEND [OPTION]...: a few steps, the result in $result.
train()
{
    job "$1" "$2" train_mnist --reproducible --seed 3 --max-steps 8 --test-samples 200 --dist-backend "${@:3}"
    result=$(result_of)
}
DIST_TRANSPORT=tcp train self 3 gloo --multiprocessing-distributed --world-size 3
expected=$result
job_check "the result of training over gloo" test -n "$expected"
DIST_TRANSPORT=ucx train self 3 ucx --multiprocessing-distributed --world-size 3
job_check "training over ucx ends as over gloo" test "$result" = "$expected"
if [ -n "$OPENMPI_RUN" ]; then
    DIST_TRANSPORT=ucx train openmpi 3 ucx
    job_check "training over ucx under mpirun ends as over gloo" test "$result" = "$expected"
fi
