#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The first thread of each rank ends, and other threads continue to use the library.
. "$srcdir/tests/support/job.sh"

program=tests/jobs/first_thread
DIST_TRANSPORT=shm job shell 3 $program gloo "file://$job_folder/shm" shares
DIST_TRANSPORT=shm DIST_NODE_MEMORY=0 job shell 3 $program gloo "file://$job_folder/messages"
DIST_TRANSPORT=tcp job shell 3 $program gloo "file://$job_folder/tcp"
job self 2 $program spawn
