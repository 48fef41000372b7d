#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The flight recorder: its file if a rank makes no call, makes another call, is killed or stopped,
# and at SIGUSR1; and the report of dist_info flight about it.
. "$srcdir/tests/support/job.sh"

JOB_LIMIT=60
export DIST_FLIGHT_FILE=rank%r.json
info=$builddir/dist_info

# in_folder KIND FILES EXIT: runs the job in a folder of its own; it must leave that number of
# files.
in_folder()
{
    local kind=$1 files=$2 file
    mkdir -p "$job_folder/${folder-$kind}" && cd "$job_folder/${folder-$kind}" && chmod 777 . || exit 99
    job shell 3 tests/jobs/flight "$kind"
    job_check "$kind: $files files" test "$(find . -name '*.json' | wc -l)" = "$files"
    for file in *.json; do
        [ ! -e "$file" ] || python3 -m json.tool "$file" >/dev/null || job_fail "$kind: $file" "no JSON"
    done
}

# says TEXT FILE...: checks that dist_info flight prints TEXT.
says()
{
    local text=$1
    shift
    "$info" flight "$@" >"$job_output" 2>&1
    job_check "$text" grep -qE -- "$text" "$job_output"
}

# refuses TEXT FILE...: checks that dist_info flight fails with exit code 1 and TEXT.
refuses()
{
    local text=$1
    shift
    "$info" flight "$@" >"$job_output" 2>&1
    job_check "exit 1: $text" test $? = 1
    job_check "$text" grep -qF -- "$text" "$job_output"
}

in_folder healthy 6
job_check "the second file" cmp -s <(head -c 30 rank0.json) <(head -c 30 rank0.json.2)
job_check "no third file" test ! -e rank0.json.3
# By default a later job in the same folder replaces the files.
mkdir -p "$job_folder/default" && cd "$job_folder/default" || exit 99
for again in 1 2; do job shell 2 "$(command -v env)" -u DIST_FLIGHT_FILE "$builddir/tests/jobs/flight" healthy; done
job_check "a file for each rank" test "$(echo dist-flight.*)" = \
    "dist-flight.0.json dist-flight.0.json.2 dist-flight.1.json dist-flight.1.json.2"
cd "$job_folder/healthy" || exit 99
if "$info" flight rank0.json 2>&1 | grep -q 'without jansson'; then
    job_skip "dist_info flight" "built without jansson"
    exit
fi
says '^group world: every rank has completed barrier #8: no rank waits in a collective$' rank?.json
says '^group world: every rank has completed barrier #8: no rank waits in a collective$' own?.json
says 'there is no file of rank 1' rank0.json rank2.json
refuses 'another file is from the same rank' rank0.json own0.json
head -c 300 rank0.json >cut.json
refuses 'cut.json: ' cut.json
echo '{"format":"other"}' >foreign.json
refuses 'not a flight recorder' foreign.json
refuses 'nowhere.json' nowhere.json

# These cases wait for a timeout.
absent()
{
    in_folder absent 3
    says '^rank 1 \(host .*, pid [0-9]+\) has not called barrier #8 of group world; its last call was all_reduce #7 \(float32 x 8, sum\); ranks 0, 2 wait for it$' ./*.json
}
few()
{
    in_folder absent 3
    says 'has not called barrier #8 of group world; its last call was all_reduce #7' ./*.json
    job_check "the last 4 calls are recorded" test "$(grep -c '"sequence"' rank0.json)" = 4
}
unsent()
{
    in_folder unsent 3
    says '^rank 2 \(host .*, pid [0-9]+\) (waits|failed) in recv from rank 0, tag 7 \(float32 x 8\); rank 0 \(host .*\) never called that send$' ./*.json
    says 'there is no file of rank 0$' rank1.json rank2.json
}
# A rank prints whom it waits for after half of the timeout.
half()
{
    job shell 3 tests/jobs/flight absent
    job_check "a warning after half of the timeout" grep -qE 'WARN barrier #8: rank 0 has waited [0-9.]+ s for rank 1 \(host' "$job_output"
}
job_parallel absent
folder=few DIST_FLIGHT=4 job_parallel few
job_parallel unsent
DIST_FLIGHT_FILE=/dev/null job_parallel half
job_parallel in_folder stopped 3

job_has_modules && job self 1 tests/jobs/unloaded "$builddir/.libs/libdist.so"
in_folder own 3
if [ "$(id -u)" = 0 ]; then
    in_folder mapped 3
else
    job_skip "mapped" "it needs root"
fi
in_folder other 3
says '^group world: ranks 0, 2 called barrier #8, but rank 1 called broadcast #8 \(float32 x 8, root 0\)' ./*.json
in_folder killed 0
DIST_FLIGHT=0 job_fails 'the file is not named' shell 3 tests/jobs/flight other
job_check "DIST_FLIGHT=0: no files" test -z "$(find . -name '*.json')"
DIST_FLIGHT=many job_fails 'DIST_FLIGHT' shell 3 tests/jobs/flight healthy
job_collect
