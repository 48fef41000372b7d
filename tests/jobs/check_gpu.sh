#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A complete run of scripts/check-gpu on the stand-in for GPUs; only in the long form.
. "$srcdir/tests/support/job.sh"
job_needs_modules

report=$job_folder/gpu-report.txt
job_fails "usage:" self 1 "$srcdir/scripts/check-gpu" --nonsense
[ -n "${CHECK_LONG-}" ] || { job_skip "scripts/check-gpu --standin" "make check-long runs it"; exit 0; }

JOB_LIMIT=900 job self 2 "$srcdir/scripts/check-gpu" --build "$builddir" --standin --report "$report"
says() { grep -qE -- "$1" "$report"; }
job_check "the report says that there was no GPU" says 'NO GPU'
job_check "the report ends with the numbers of results" says '^[0-9]+ passed, 0 failed, [0-9]+ skipped$'
job_check "the report compares losses" says '^PASS: the losses agree'
job_check "the report has the launch time of a small all-reduce" says 'launch of an all-reduce of 16 bytes'
