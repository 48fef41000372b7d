#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Ordinary memory between ranks of one machine, by bounce buffers and by CMA, also where the kernel
# refuses CMA.
. "$srcdir/tests/support/job.sh"
program=tests/jobs/movers
EPERM=1 EFAULT=14 ENOSYS=38

for ranks in 2 3 5; do
    job shell $ranks "$builddir/$program" 0 -2
done
DIST_SHM_CMA=0 job shell 3 "$builddir/$program" 0 -2
job shell 3 "$builddir/$program" $EPERM 1
job shell 2 "$builddir/$program" $ENOSYS -1
job shell 4 "$builddir/$program" $EFAULT 0

# A rank that is stopped in the middle of a call does not write when it continues.
job shell 2 "$builddir/tests/jobs/stopped"
