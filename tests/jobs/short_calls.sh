#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Short calls by several threads at once, on a shared group and on groups of their own. configure.sh
# also runs it with ThreadSanitizer.
. "$srcdir/tests/support/job.sh"

program=tests/jobs/short_calls
job shell 2 $program gloo 2000
job shell 3 $program gloo 500
DIST_PROGRESS_THREAD=0 job shell 2 $program gloo 2000
DIST_TRANSPORT=tcp job shell 2 $program gloo 200
