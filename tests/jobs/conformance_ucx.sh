#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The battery against backend ucx: over shared memory and UCX, and over UCX alone, with its TCP and
# with its shared memory; a rank that dies; and training with it.
. "$srcdir/tests/support/job.sh"

battery=tests/conformance/conformance
brief=--brief
[ -n "${CHECK_LONG-}" ] && brief= JOB_LIMIT=400

[ -e "$builddir/.libs/dist_ucx.so" ] || { job_skip ucx "the ucx module was not built"; exit 77; }
export UCX_LOG_LEVEL=fatal

# ucx RANKS [OPTION]...
ucx() { job self "$1" $battery ucx --spawn "$@" $brief; }

# Where many ranks share few CPUs, each way has its manners, and all of them together have all.
ranks_list="1 2 3 4 8"
[ -z "${CHECK_SHORT-}" ] || ranks_list="1 3"
for ranks in $ranks_list; do
    modes=(all all all)
    [ "$ranks" -lt 8 ] || modes=(group flood async)
    [ -z "${CHECK_LONG-}" ] || modes=(all all all)
    ucx "$ranks" --mode "${modes[0]}"
    [ "$ranks" -gt 1 ] || continue
    UCX_TLS=tcp,self DIST_TRANSPORT=ucx ucx "$ranks" --mode "${modes[1]}"
    UCX_TLS=tcp,sm,self DIST_TRANSPORT=ucx ucx "$ranks" --mode "${modes[2]}"
done

# UCX says what a rank that was killed leaves behind; every other rank gets an error.
JOB_LIMIT=40
export DIST_TRANSPORT=ucx
for tls in tcp,self tcp,sm,self; do
    export UCX_TLS=$tls
    for kind in kill kill-in exit count; do
        job shell 4 tests/jobs/mishap ucx $kind 2
    done
    job shell 3 tests/jobs/mishap ucx kill-fork 0
    job shell 3 tests/jobs/mishap ucx silent 1
done
