#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A rank aborts a group: all that wait in it return at once, on every rank, and know who it was.
. "$srcdir/tests/support/job.sh"

JOB_LIMIT=60
job shell 3 tests/jobs/aborts gloo
DIST_TRANSPORT=tcp job shell 3 tests/jobs/aborts gloo
DIST_PROGRESS_THREAD=0 DIST_NODE_MEMORY=0 job shell 3 tests/jobs/aborts gloo
[ -e "$builddir/.libs/dist_ucx.so" ] && job shell 3 tests/jobs/aborts ucx
true
