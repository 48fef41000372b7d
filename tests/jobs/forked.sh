#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Ranks fork while they have groups: calls of the children are refused, and the job is not
# disturbed.
. "$srcdir/tests/support/job.sh"

JOB_LIMIT=60
job shell 3 tests/jobs/forked gloo
DIST_TRANSPORT=tcp job shell 2 tests/jobs/forked gloo
DIST_NODE_MEMORY=0 job shell 2 tests/jobs/forked gloo
job openmpi 2 tests/jobs/forked mpi
job mpich 2 tests/jobs/forked mpi
[ ! -e "$builddir/.libs/dist_ucx.so" ] || job shell 2 tests/jobs/forked ucx
