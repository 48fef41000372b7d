# SPDX-License-Identifier: BSD-3-Clause
# Jobs that continue after a death; sourced after job.sh by shrink.sh and slurm.sh.
#
#   survives NAME EXIT COUNT TEXT LAUNCHER RANKS PROGRAM ARGS...
#       the job exits with EXIT (any: with any code, since its launcher determines it), leaves no
#       process behind, and COUNT lines contain TEXT
#
# Prints a line "# NAME: ..." with the number of lines, the longest time until a rank continued, and the
# exit status.

survives()
{
    local name=$1 exit=$2 count=$3 text=$4 leaked=no lines longest began=$SECONDS
    shift 4
    job_possible "$name" "$1" || return 0
    job_launch "$@"
    job_leaked && leaked=yes
    lines=$(grep -cF -- "$text" "$job_output")
    longest=$(sed -n 's/.* goes on with [0-9]* after \([0-9.]*\) s$/\1/p' "$job_output" | sort -n | tail -n 1)
    echo "# $name: $lines ranks: $text, ${longest:--} s, exit $job_status"
    # A job that had to be killed at its limit also has the exit status 137.
    if [ "$job_status" -eq 124 ] || [ $((SECONDS - began)) -ge $((job_patience * JOB_LIMIT)) ]; then
        job_fail "$name" "not done within $((job_patience * JOB_LIMIT)) s"
    elif [ "$exit" != any ] && [ "$job_status" -ne "$exit" ]; then
        job_fail "$name" "exit $job_status, not $exit"
    elif [ "$lines" -ne "$count" ]; then
        job_fail "$name" "$lines lines, not $count, with: $text"
    elif [ $leaked = yes ]; then
        job_fail "$name" "processes left behind"
    else
        job_pass "$name"
    fi
}
