#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The conformance tests against backends self and gloo, over each transport alone and with automatic
# selection.
. "$srcdir/tests/support/job.sh"

battery=tests/conformance/conformance
brief=--brief
[ -n "${CHECK_LONG-}" ] && brief= JOB_LIMIT=400

# gloo RANKS [OPTION]...
gloo() { job self $1 $battery gloo --spawn "$@" $brief; }

# The table of dist_info must agree with the behaviour.
table=$job_folder/support.csv
"$builddir/dist_info" backends --format csv >"$table"
job self 1 $battery self --spawn 1 --complete --table "$table" $brief
gloo 2 --complete --table "$table"

# The kinds of memory that the loop below does not use.
memories=(any shared ordinary)
gloo 2 --memory any
gloo 3 --memory shared --mode flood

# Three ranks run all modes over each transport; with other numbers the transports share the modes.
ranks_list="1 2 3 5"
[ -z "${CHECK_LONG-}" ] || ranks_list="1 2 3 4 5 7 8"
[ -z "${CHECK_SHORT-}" ] || ranks_list="1 3 5"
for ranks in $ranks_list; do
    modes=(all all all all)
    [ $ranks -ne 2 ] || modes=(all flood group)
    [ $ranks -ne 5 ] || modes=(async group flood blocking)
    [ -z "${CHECK_LONG-}" ] || modes=(all all all all)
    gloo $ranks --memory ${memories[$((ranks % 3))]} --mode ${modes[0]}
    [ $ranks -gt 1 ] || [ -n "${CHECK_LONG-}" ] || continue # a world of one exchanges no messages
    DIST_TRANSPORT=tcp gloo $ranks --mode ${modes[1]}
    DIST_NODE_MEMORY=0 DIST_TRANSPORT=shm gloo $ranks --mode ${modes[2]}
    DIST_NODE_MEMORY=0 DIST_TRANSPORT=shm DIST_SHM_CMA=0 gloo $ranks --mode ${modes[0]}
    [ $ranks -lt 3 ] || gloo $ranks --mixed --mode ${modes[3]}
done
# Several sockets per pair, and sends that complete when the kernel has released the memory.
DIST_TCP_SOCKETS=3 DIST_TRANSPORT=tcp gloo 3
DIST_TCP_SOCKETS=2 DIST_TCP_ZEROCOPY=on DIST_TRANSPORT=tcp gloo 2 --mode async
# A world so large that the ranks first agree on the size of their addresses; one lacks a transport.
gloo 40 --mixed --only barrier
DIST_PROGRESS_THREAD=0 gloo 3
gloo 4 --reversed --mode flood
gloo 8 --mixed --mode blocking
