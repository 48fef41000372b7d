#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Threads on two groups that share ranks. configure.sh also runs it with ThreadSanitizer.
. "$srcdir/tests/support/job.sh"

program=tests/jobs/two_groups
job shell 4 $program gloo 1000
DIST_TRANSPORT=tcp job shell 4 $program gloo 1000
DIST_PROGRESS_THREAD=0 job shell 4 $program gloo 1000
job openmpi 4 $program mpi 200
job mpich 4 $program mpi 200
