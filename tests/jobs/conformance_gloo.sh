#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The battery against backends self and gloo, over each transport alone, the choice, and both.
. "$srcdir/tests/support/job.sh"

battery=tests/conformance/conformance
brief=--brief
[ -n "${CHECK_LONG-}" ] && brief= JOB_LIMIT=400

# gloo RANKS [OPTION]...
gloo() { job self $1 $battery gloo --spawn "$@" $brief; }

# What dist_info says is what happens.
table=$job_folder/support.csv
"$builddir/dist_info" backends --format csv >"$table"
job self 1 $battery self --spawn 1 --complete --table "$table" $brief
gloo 2 --complete --table "$table"

# The other kinds of memory, where the loop below has another.
memories=(any shared ordinary)
gloo 2 --memory any
gloo 3 --memory shared --mode flood

# Each way has all its manners with three ranks; with others all ways together have them.
ranks_list="1 2 3 5"
[ -z "${CHECK_LONG-}" ] || ranks_list="1 2 3 4 5 7 8"
[ -z "${CHECK_SHORT-}" ] || ranks_list="1 3 5"
for ranks in $ranks_list; do
    modes=(all all all all)
    [ $ranks -ne 2 ] || modes=(all flood group)
    [ $ranks -ne 5 ] || modes=(async group flood blocking)
    [ -z "${CHECK_LONG-}" ] || modes=(all all all all)
    gloo $ranks --memory ${memories[$((ranks % 3))]} --mode ${modes[0]}
    [ $ranks -gt 1 ] || [ -n "${CHECK_LONG-}" ] || continue # it talks to nobody
    DIST_TRANSPORT=tcp gloo $ranks --mode ${modes[1]}
    DIST_NODE_MEMORY=0 DIST_TRANSPORT=shm gloo $ranks --mode ${modes[2]}
    DIST_NODE_MEMORY=0 DIST_TRANSPORT=shm DIST_SHM_CMA=0 gloo $ranks --mode ${modes[0]}
    [ $ranks -lt 3 ] || gloo $ranks --mixed --mode ${modes[3]}
done
# Several sockets a pair; sends that end when the kernel has done with the memory.
DIST_TCP_SOCKETS=3 DIST_TRANSPORT=tcp gloo 3
DIST_TCP_SOCKETS=2 DIST_TCP_ZEROCOPY=on DIST_TRANSPORT=tcp gloo 2 --mode async
# So many that they agree first on how much they tell each other; one lacks a transport.
gloo 40 --mixed --only barrier
DIST_PROGRESS_THREAD=0 gloo 3
gloo 4 --reversed --mode flood
gloo 8 --mixed --mode blocking
