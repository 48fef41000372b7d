#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Memory that the kernel does not let other ranks read: all of a rank's, or pages such as a device's.
. "$srcdir/tests/support/job.sh"

JOB_LIMIT=60
backends=(gloo)
[ ! -e "$builddir/.libs/dist_ucx.so" ] || backends+=(ucx)
for backend in "${backends[@]}"; do
    for rank in 0 2; do
        job shell 3 tests/jobs/unreadable "$backend" $rank before
        job shell 3 tests/jobs/unreadable "$backend" $rank after
    done
    job shell 3 tests/jobs/unreadable "$backend" 0 pages
done
DIST_NODE_MEMORY=0 job shell 3 tests/jobs/unreadable gloo 1 after
DIST_NODE_MEMORY=0 job shell 3 tests/jobs/unreadable gloo 0 pages
DIST_TRANSPORT=tcp DIST_TCP_ZEROCOPY=on job shell 3 tests/jobs/unreadable gloo 0 pages
if [ ${#backends[@]} = 2 ]; then
    DIST_TRANSPORT=ucx job shell 3 tests/jobs/unreadable ucx 1 after
    DIST_TRANSPORT=ucx job shell 3 tests/jobs/unreadable ucx 0 pages
fi
