#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The three ways to start a job: a launcher (without MASTER_ADDR), spawning, a shell loop.
. "$srcdir/tests/support/job.sh"

[ -z "${CHECK_SHORT-}" ] || { job_skip "launchers" "the other suite runs them"; exit; }

battery=tests/conformance/conformance

# The ranks' results do not depend on the launcher.
job openmpi 3 $battery gloo --brief --mode blocking
job mpich 3 $battery gloo --brief --mode async
job self 3 $battery gloo --spawn 3 --brief --mode group
job shell 3 $battery gloo --brief --mode flood

# The program of the README with every launcher; 0 + 1 + 2 is 3.
hello=examples/hello_all_reduce
job self 1 $hello
job_check "one process alone is a world of one" grep -q 'rank 0 of 1: sum 0' "$job_output"
for launcher in openmpi mpich shell; do
    job $launcher 3 $hello
    [ "$job_status" = 0 ] &&
        job_check "three ranks by $launcher" grep -q 'rank 2 of 3: sum 3' "$job_output"
done

# A loop that sets LOCAL_RANK alone is enough on one machine.
local_ranks()
{
    for rank in 0 1 2; do
        LOCAL_RANK=$rank WORLD_SIZE=3 MASTER_PORT=$1 "$builddir/$hello" >>"$job_folder/loop" &
    done
    wait
    [ "$(grep -c 'of 3: sum 3' "$job_folder/loop")" = 3 ]
}
job_check "three ranks by LOCAL_RANK" local_ranks "$(job_port)"
