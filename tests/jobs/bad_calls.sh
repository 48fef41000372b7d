#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Wrong arguments are refused and harm nothing; calls that do not match end their group alone.
. "$srcdir/tests/support/job.sh"

JOB_LIMIT=90
job shell 3 tests/jobs/bad_calls gloo
job shell 1 tests/jobs/bad_calls self
job openmpi 2 tests/jobs/bad_calls mpi
job mpich 2 tests/jobs/bad_calls mpi
job shell 1 tests/jobs/any_arguments
job shell 2 tests/jobs/any_arguments
DIST_TRANSPORT=tcp DIST_NODE_MEMORY=0 job shell 2 tests/jobs/any_arguments

job shell 3 tests/jobs/bad_matches gloo roots
DIST_NODE_MEMORY=0 job shell 3 tests/jobs/bad_matches gloo
DIST_TRANSPORT=tcp job shell 4 tests/jobs/bad_matches gloo
# MPI_Finalize waits for what the group that broke had begun, so it is left out then, which mpirun
# calls improper.
job_fails "bad matches: " openmpi 3 tests/jobs/bad_matches mpi
