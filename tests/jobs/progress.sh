#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Long operations show their progress on a terminal and clear the line at the end; in a pipe they
# show nothing.
. "$srcdir/tests/support/job.sh"

export XDG_CACHE_HOME=$job_folder/cache
mkdir "$XDG_CACHE_HOME"
erase=$'\r\033[K'

# shown TEXT: a progress line began with TEXT. cleared TEXT: the final state of the line does not.
shown() { grep -qF "$erase$1" "$job_output"; }
cleared()
{
    local all
    all=$(cat "$job_output")
    [[ ${all##*"$erase"} != "$1"* ]]
}
silent() { ! grep -qF $'\033' "$job_output"; }

# at_terminal TEXT COMMAND...: the command shows TEXT as its progress.
at_terminal()
{
    local text=$1
    shift
    job self - "$script" -qec "$(printf '%q ' "$builddir/$1" "${@:2}")" /dev/null
    job_check "$1 $2 shows its progress" shown "$text"
    job_check "$1 $2 clears the line" cleared "$text"
    job self - "$@"
    job_check "$1 $2 shows nothing in a pipe" silent
}

script=$(command -v script)
if ! "${script:-false}" -qec true /dev/null </dev/null >/dev/null 2>&1; then
    job_skip "all" "no script of util-linux here"
    exit
fi
at_terminal "1 of 1: ring: " dist_sim all_reduce --ranks 70 --bytes 1K,2K --algorithm ring
at_terminal "measuring the cost of messages" dist_info tune --ranks 2
at_terminal "2 ranks, " dist_info selftest --transport shm --ranks 2 --brief --only barrier
at_terminal "all_reduce of 4096 bytes" dist_bench -n 2 all_reduce -m 4K:4K
