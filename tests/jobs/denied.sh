#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# System calls that a container's seccomp filter denies: the library works without them, or reports
# which one is denied.
. "$srcdir/tests/support/job.sh"

JOB_LIMIT=60
denied=$builddir/tests/jobs/denied
battery=("$builddir/dist_info" selftest --backend gloo --only all_gather --brief)

# Error 38 is ENOSYS.
job self 2 "$denied" memfd=38 "${battery[@]}" --ranks 2
job self 2 "$denied" memfd "$builddir/distrun" -n 2 "${battery[@]}"

# refused TEXT CALL PROGRAM ARGS...
refused() { job_fails "$1 is denied here (" self 2 "$denied" "${@:2}"; }
bench=("$builddir/dist_bench" -n 2 barrier)
refused "the system call epoll_create1 or eventfd" eventfd=38 "${bench[@]}"
DIST_TRANSPORT=tcp refused "the system call epoll_create1 or timerfd_create" timerfd "${bench[@]}"
refused "the system call getrandom" getrandom "${bench[@]}"
refused "the system call signalfd, eventfd or pipe" signalfd "$builddir/distrun" -n 2 true
job_check "the error does not mention limits" eval '! grep -q ulimit "$job_output"'
