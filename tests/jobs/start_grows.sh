#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The resources that a rank needs to start do not grow with the number of ranks on its machine:
# descriptors, mappings, system calls that create, map or send. Counts, unlike times, do not depend
# on the machine's load.
. "$srcdir/tests/support/job.sh"

program=$builddir/tests/jobs/start_grows
few=8 many=32
[ -z "${CHECK_LONG-}" ] || many=200
export DIST_BACKEND=gloo DIST_TUNING=off
calls=openat,close,mmap,munmap,madvise,memfd_create,ftruncate,socket,bind,listen,connect,accept4
calls=$calls,pipe2,epoll_create1,epoll_ctl,eventfd2,timerfd_create,sendmsg

# With many ranks a rank has at most two more than with few: a rank that is ahead may already have
# connected.
start_holds()
{
    local of_few of_many
    of_few=$("$program" $few) && of_many=$("$program" $many) || return 1
    echo "      $few ranks: $of_few; $many ranks: $of_many"
    awk '{ for (i = 2; i <= 4; i += 2) if (NR == 1) few[i] = $i; else bad += $i > few[i] + 2 }
         END { exit NR != 2 || bad }' <<<"$of_few"$'\n'"$of_many"
}

# System calls per rank: those of all processes, including launcher and store, divided by the ranks.
start_calls()
{
    strace -f -qq -c -U calls -e trace=$calls -o "$job_folder/calls" "$program" "$1" >/dev/null &&
        awk -v ranks="$1" '$1 ~ /^[0-9]+$/ { last = $1 } END { print last / ranks }' \
            "$job_folder/calls"
}

start_calls_stay()
{
    local of_few of_many
    of_few=$(start_calls $few) && of_many=$(start_calls $many) || return 1
    echo "      calls of the system a rank: $of_few of $few ranks, $of_many of $many"
    awk -v few="$of_few" -v many="$of_many" 'BEGIN { exit !(few > 0 && many <= few + 5) }'
}

job_check "descriptors and mappings of a rank" start_holds
if grep -q 'FLAGS = .*-fsanitize' "$builddir/Makefile"; then
    job_skip "system calls of a rank" "a sanitizer maps memory of its own"
elif strace -qq -o /dev/null true 2>/dev/null; then
    job_check "system calls of a rank" start_calls_stay
else
    job_skip "system calls of a rank" "strace is missing, or may not trace"
fi
