#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The v-forms between ranks of one machine: counts of all kinds, in any memory.
. "$srcdir/tests/support/job.sh"
program=$builddir/tests/jobs/uneven
calls=300
EPERM=1 EFAULT=14 EMFILE=24
[ -z "${CHECK_LONG-}" ] || calls=3000

for ranks in 2 3 5; do
    job shell $ranks "$program" $calls 1
done
DIST_SHM_CMA=0 job shell 3 "$program" $calls 2
job shell 3 "$program" $calls 4 $EPERM -1
job shell 2 "$program" $calls 5 $EFAULT 0
job shell 3 "$program" $calls 7 $EMFILE 1
job shell 2 "$builddir/tests/jobs/stopped" v
DIST_NODE_MEMORY=0 job shell 3 "$program" $((calls / 3)) 3
# A rank that cannot connect because it has too few descriptors reports it, with any DIST_DEBUG.
DIST_NODE_MEMORY=0 DIST_TIMEOUT=3 job_fails "raise \`ulimit -n\`" shell 3 "$program" 3 7 $EMFILE 1
