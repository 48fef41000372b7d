#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Memory that other ranks cannot read: all of a rank's memory, or pages such as a device's.
. "$srcdir/tests/support/job.sh"

JOB_LIMIT=60
job shell 3 tests/jobs/unreadable gloo 2 before
job shell 3 tests/jobs/unreadable gloo 0 after
job shell 3 tests/jobs/unreadable gloo 0 pages
[ -n "${CHECK_WATCHED-}" ] || job shell 3 tests/jobs/unreadable gloo 0 unmapped # valgrind reports it
DIST_NODE_MEMORY=0 job shell 3 tests/jobs/unreadable gloo 1 after
DIST_NODE_MEMORY=0 job shell 3 tests/jobs/unreadable gloo 0 pages
DIST_TRANSPORT=tcp DIST_TCP_ZEROCOPY=on job shell 3 tests/jobs/unreadable gloo 0 pages
if [ -e "$builddir/.libs/dist_ucx.so" ]; then
    job shell 3 tests/jobs/unreadable ucx 2 before
    DIST_TRANSPORT=ucx job shell 3 tests/jobs/unreadable ucx 0 pages
fi
