#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Ranks are killed at random; those that are left make a smaller group and go on.
. "$srcdir/tests/support/job.sh"

program=tests/jobs/shrink
rounds=3 seed=${SHRINK_SEED:-$RANDOM} JOB_LIMIT=60
[ -z "${CHECK_LONG-}" ] || rounds=100
[ -z "${CHECK_SHORT-}" ] || rounds=1

# killed BACKEND: in this environment.
killed()
{
    local round
    for ((round = 0; round < rounds; round++)); do
        job shell 6 $program "$1" 3 $((seed + round))
        job shell 4 $program "$1" 3 $((seed + round))
    done
}

killed gloo
DIST_NODE_MEMORY=0 killed gloo
DIST_TRANSPORT=tcp killed gloo
# Not over UCX: where a peer dies while they connect, UCX 1.13 ends the process itself.
# The example: rank 1 is killed in the middle.
cat >"$job_folder/killed" <<'END'
#!/bin/bash
"$1" &
[ "$RANK" != 1 ] || { sleep 1; kill -KILL $!; exit 0; }
wait $!
END
chmod +x "$job_folder/killed"
job shell 3 "$job_folder/killed" "$builddir/examples/elastic"
job_check "rank 0 goes on" grep -q '^rank 0: 2 ranks are left, weight 1.00$' "$job_output"
job_check "rank 2 too" grep -q '^rank 2: 2 ranks are left, weight 1.00$' "$job_output"
job_aside job shell 3 $program gloo absent
job shell 3 $program gloo store
job_collect
