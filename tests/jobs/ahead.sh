#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# One rank posts far more than the others receive: all of it arrives, and memory stays bounded.
. "$srcdir/tests/support/job.sh"

# Under AddressSanitizer freed memory counts as little as elsewhere.
export ASAN_OPTIONS=${ASAN_OPTIONS-}:quarantine_size_mb=1
JOB_LIMIT=60
MiB=$((1 << 20))
export DIST_TIMEOUT=30

# ahead TRANSPORT GROWTH: a late rank may grow by so many MiB, beside what its calls need.
ahead()
{
    local program=tests/jobs/ahead
    export DIST_TRANSPORT=$1
    job shell 2 $program reduces 16 $((25 * MiB)) $(($2 + 64))
    job shell 2 $program tags 70 $MiB "$2"
    job shell 4 $program mixed 16 $((4 * MiB)) $(($2 + 16)) 100
    job shell 3 $program all 16 $MiB $((2 * $2 + 16)) 60
    [ -n "${CHECK_LONG-}" ] || return 0
    job shell 4 $program reduces 16 $((25 * MiB)) $(($2 + 64))
    job shell 2 $program reduces 2 $((160 * MiB)) $(($2 + 320))
    job shell 4 $program tags 70 $MiB "$2"
    for ranks in 2 4; do
        job shell $ranks $program mixed 64 $((64 * MiB)) $(($2 + 192)) 1000
        job shell $ranks $program all 64 $((8 * MiB)) $(((ranks - 1) * $2 + 32)) 1000
    done
}

ahead tcp 24
DIST_TCP_SOCKETS=3 DIST_TCP_ZEROCOPY=on ahead tcp 24
export DIST_TRANSPORT=tcp
DIST_PROGRESS_THREAD=0 job shell 4 tests/jobs/ahead mixed 16 $((4 * MiB)) 40 100
DIST_TCP_EARLY_LIMIT=0 job shell 3 tests/jobs/ahead all 16 $MiB 16 60
DIST_TCP_EARLY_LIMIT=1M DIST_TCP_SOCKETS=2 job shell 3 tests/jobs/ahead all 16 $MiB 24 60
