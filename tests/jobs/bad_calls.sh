#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Wrong arguments are refused without other effects; mismatched calls fail only their own group.
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
# MPI_Finalize would wait for operations of the failed group, so it is left out, which mpirun
# reports as improper termination.
job_fails "bad matches: " openmpi 3 tests/jobs/bad_matches mpi
