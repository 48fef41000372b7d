#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# What a rank needs to start does not grow with the ranks of its machine: descriptors, mappings,
# calls of the system that make, map or send something. Counts, not times: they are the same on a
# busy machine.
. "$srcdir/tests/support/job.sh"

program=$builddir/tests/jobs/start_grows
few=8 many=32
[ -z "${CHECK_LONG-}" ] || many=200
export DIST_BACKEND=gloo DIST_TUNING=off
calls=openat,close,mmap,munmap,madvise,memfd_create,ftruncate,socket,bind,listen,connect,accept4
calls=$calls,pipe2,epoll_create1,epoll_ctl,eventfd2,timerfd_create,sendmsg

# No rank holds more of many than of few, but for two: a rank ahead may already talk to it.
start_holds()
{
    local of_few of_many
    of_few=$("$program" $few) && of_many=$("$program" $many) || return 1
    echo "      $few ranks: $of_few; $many ranks: $of_many"
    awk '{ for (i = 2; i <= 4; i += 2) if (NR == 1) few[i] = $i; else bad += $i > few[i] + 2 }
         END { exit NR != 2 || bad }' <<<"$of_few"$'\n'"$of_many"
}

# Calls of a rank: all ranks' together, the launcher's and the store's too, by the ranks.
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

job_check "what a rank holds" start_holds
if grep -q 'FLAGS = .*-fsanitize' "$builddir/Makefile"; then
    job_skip "what a rank calls" "a sanitizer maps memory of its own"
elif strace -qq -o /dev/null true 2>/dev/null; then
    job_check "what a rank calls" start_calls_stay
else
    job_skip "what a rank calls" "strace is missing, or may not trace"
fi
