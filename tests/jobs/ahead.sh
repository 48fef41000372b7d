#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# One rank posts far more than the other ranks receive, over every transport: everything arrives,
# and what a rank stores for a rank that is ahead stays below the limit in docs/ARCHITECTURE.md.
. "$srcdir/tests/support/job.sh"
. "$srcdir/tests/support/nodes.sh"

# Makes AddressSanitizer return freed memory, so that it is not counted.
export ASAN_OPTIONS=${ASAN_OPTIONS-}:quarantine_size_mb=1
JOB_LIMIT=60
MiB=$((1 << 20))
export DIST_TIMEOUT=30
program=tests/jobs/ahead

# Runs a case and prints by how much a late rank grew.
late()
{
    job "$@"
    awk '$3 == "grew" && $2 && $5 > most { most = $5 }
        END { print "      a late rank grew by " most + 0 " MiB at most" }' "$job_output"
}

# ahead KEPT LAUNCHER BACKEND: a late rank may grow by KEPT MiB for each rank that is ahead of it,
# in addition to the memory that its calls need.
ahead()
{
    local kept=$1 launcher=$2 backend=$3 ranks
    late $launcher 4 $program $backend mixed 16 $((4 * MiB)) $((kept + 16)) 100
    late $launcher 4 $program $backend all 700 64 $((kept + 16)) 10
    [ -n "${CHECK_LONG-}" ] || return 0
    late $launcher 4 $program $backend reduces 16 $((25 * MiB)) $((kept + 64))
    late $launcher 2 $program $backend reduces 2 $((160 * MiB)) $((kept + 320))
    late $launcher 4 $program $backend tags 70 $MiB $kept
    for ranks in 2 4; do
        late $launcher $ranks $program $backend mixed 64 $((64 * MiB)) $((kept + 64)) 1000
        late $launcher $ranks $program $backend all 64 $((8 * MiB)) \
            $(((ranks - 1) * kept + 32)) 1000
    done
}

# As ahead, and the other modes in a short form.
ahead_more()
{
    late $2 2 $program $3 reduces 16 $((25 * MiB)) $(($1 + 64))
    late $2 2 $program $3 tags 70 $MiB "$1"
    late $2 3 $program $3 all 16 $MiB $((2 * $1 + 16)) 60
    ahead "$@"
}

[ -z "${CHECK_LONG-}" ] || JOB_LIMIT=200

# The limit includes memory that lower libraries allocate as they connect: 8 MiB of tcp's 24.
DIST_TRANSPORT=tcp ahead_more 24 shell gloo
DIST_TCP_SOCKETS=3 DIST_TCP_ZEROCOPY=on DIST_TRANSPORT=tcp ahead 24 shell gloo
export DIST_TRANSPORT=tcp
DIST_PROGRESS_THREAD=0 late shell 4 $program gloo mixed 16 $((4 * MiB)) 40 100
DIST_TCP_EARLY_LIMIT=0 late shell 3 $program gloo all 16 $MiB 16 60
DIST_TCP_EARLY_LIMIT=1M DIST_TCP_SOCKETS=2 late shell 3 $program gloo all 16 $MiB 24 60

# By messages, read from the sender's memory or copied, and by mailboxes and bounce buffers.
export DIST_TRANSPORT=shm
DIST_NODE_MEMORY=0 ahead 8 shell gloo
DIST_NODE_MEMORY=0 DIST_SHM_CMA=0 ahead 8 shell gloo
unset DIST_TRANSPORT
ahead 8 shell gloo

if [ -e "$builddir/.libs/dist_ucx.so" ]; then
    DIST_TRANSPORT=ucx ahead 24 shell ucx
else
    job_skip "transport ucx" "the ucx module was not built"
fi

for launcher in openmpi mpich; do
    DIST_TRANSPORT=mpi ahead 24 $launcher mpi
    DIST_MPI_COLL=native late $launcher 3 $program mpi mixed 16 $MiB 0 60
done

# Both at once: ranks 2 and 3 are on another machine.
export node_ranks="2 3"
late_nodes() { late shell 4 "$BASH" -c 'on_nodes "$@"' on_nodes "$builddir/$program" gloo "$@"; }
if node_make 2>"$job_folder/why"; then
    trap 'node_end; job_end' EXIT
    late_nodes mixed 16 $((4 * MiB)) 48 100
    [ -z "${CHECK_LONG-}" ] || late_nodes mixed 64 $((64 * MiB)) 96 1000
    [ -z "${CHECK_LONG-}" ] || late_nodes all 64 $((8 * MiB)) 112 1000
else
    job_skip "two machines" "no network namespaces here: $(tail -n 1 "$job_folder/why")"
fi
