#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A rank dies, leaves, falls silent or calls something else: every other rank gets an error.
. "$srcdir/tests/support/job.sh"

JOB_LIMIT=40
for transport in shm tcp; do
    export DIST_TRANSPORT=$transport
    for kind in kill kill-in exit count dtype op; do
        job shell 4 tests/jobs/mishap gloo $kind 2
    done
    job shell 4 tests/jobs/mishap gloo kill 0
    job shell 3 tests/jobs/mishap gloo kill-fork 1
    job shell 3 tests/jobs/mishap gloo kill-fork 0
    job shell 3 tests/jobs/mishap gloo silent 1
done
