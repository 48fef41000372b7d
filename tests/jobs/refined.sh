#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# DIST_TUNING=refine: costs that are far from the truth lead to other choices than they predict.
. "$srcdir/tests/support/job.sh"

# Messages that cost nothing, over links of 1 MB/s: few bytes are all that counts.
costs=$job_folder/costs
cat >"$costs" <<'END'
libdist tuning 1
same_numa_latency_ns 1
same_numa_overhead_ns 0
same_numa_bytes_per_second 1000000
same_node_latency_ns 1
same_node_overhead_ns 0
same_node_bytes_per_second 1000000
step_ns 1
END

says() { grep -qE -- "$1" "$job_output"; }

export DIST_TRANSPORT=tcp
DIST_TUNING=refine,$costs job shell 4 tests/jobs/refined yes
job_check "it says so" says 'since it was the fastest of [23] that calls of this program tried'
DIST_TUNING=refine,$costs DIST_PROGRESS_THREAD=0 job shell 3 tests/jobs/refined yes
DIST_TUNING=$costs job shell 4 tests/jobs/refined no
DIST_TUNING=refine,$costs DIST_ALGO=all_reduce:ring,broadcast:chain,reduce:chain,all_gather:ring \
    job shell 4 tests/jobs/refined no
DIST_TUNING=refine,$costs job self 3 dist_info explain broadcast --bytes 1K --ranks 3 --run
job_check "dist_info shows what was tried" says '^  algorithm +segments +predicted +tried +measured'
job_check "and why" says '^Chosen: [a-z_]+, since it was the fastest of '
DIST_TUNING=$costs job self 3 dist_info explain broadcast --bytes 1K --ranks 3 --run
job_check "not unasked" says '^  algorithm +segments +predicted +measured'
DIST_TUNING=refine, job_fails "DIST_TUNING is none of" shell 2 tests/jobs/refined yes
