#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The sharded optimizer equals data-parallel training with the same optimizer on every rank: bit by
# bit on one machine, nearly between machines; and its errors for misuse.
. "$srcdir/tests/support/job.sh"
. "$srcdir/tests/support/nodes.sh"

program=tests/jobs/zero faults=tests/jobs/zero_faults
export DIST_TIMEOUT=60
ranks=(1 2 4) more=(3) steps=steps=10
[ -z "${CHECK_LONG-}" ] || { ranks=(1 2 3 4 5 7 8) more=(1 2 3 4 8); steps=steps=30; }
[ -z "${CHECK_SHORT-}" ] || ranks=(3)

for n in "${ranks[@]}"; do
    job shell "$n" $program $steps optimizer=adam bucket=1 restore=1 sharers="$n"
done
for n in "${more[@]}"; do
    job shell "$n" $program $steps optimizer=own bucket=100000 own=1 accumulate=2 beside=1 restore=1
    job shell "$n" $program $steps optimizer=nesterov clip=0.3 tolerance=1e-5
    job shell "$n" $program $steps optimizer=adamw sum=1 bucket=65536
    job shell "$n" $program $steps optimizer=plain
done
export DIST_NODE_MEMORY=0
job shell 3 $program $steps optimizer=nesterov bucket=20000 restore=1 beside=1 sharers=1 tolerance=1e-5
DIST_TRANSPORT=tcp job shell 4 $program $steps optimizer=own clip=0.3 bucket=1 own=1 tolerance=1e-5
DIST_PROGRESS_THREAD=0 job shell 2 $program $steps optimizer=sgd bucket=20000 tolerance=1e-5
unset DIST_NODE_MEMORY

for form in 1 0; do
    export DIST_NODE_MEMORY=$form
    for fault in missing mismatch leaves early step arguments huge forked slow; do
        job shell 3 $faults $fault
    done
    [ -n "${CHECK_SHORT-}" ] || job shell 3 $faults scarce
    for fault in killed killed-in; do
        job shell 3 "$BASH" "$srcdir/tests/support/killed.sh" "$builddir/$faults" $fault
    done
done
unset DIST_NODE_MEMORY

# Ranks in separate PID namespaces cannot map each other's memory.
alone() { exec unshare --pid --fork --mount-proc "$@"; }
export -f alone
if unshare --pid --fork --mount-proc true 2>/dev/null; then
    job shell 3 "$BASH" -c 'alone "$@"' alone "$builddir/$program" $steps optimizer=nesterov \
        sharers=1 tolerance=1e-5
else
    job_skip "ranks in PID namespaces" "none can be made here"
fi

if [ -n "${CHECK_SHORT-}" ]; then
    job_skip "two machines" "the other suite runs them"
elif node_make 2>"$job_folder/why"; then
    nodes 3 "2" "$builddir/$program" $steps optimizer=nesterov bucket=20000 restore=1 sharers=1 tolerance=1e-5
else
    job_skip "two machines" "no network namespaces here: $(tail -n 1 "$job_folder/why")"
fi
