#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Tests that job.sh and count.sh detect failures: runs faulty cases and checks the results.
set -u
folder=$(mktemp -d "${TMPDIR:-/tmp}/dist-planted.XXXXXX") || exit 99
trap 'rm -rf "$folder"' EXIT
failed=0

# tells CONDITION TEXT: passes if the condition is true.
tells()
{
    if eval "$1"; then
        echo "PASS: planted: $2"
    else
        echo "FAIL: planted: $2"
        failed=1
    fi
}

# wants RESULT REASON CASE: a script with that single case must print RESULT, followed by REASON.
wants()
{
    local output
    output=$("$BASH" -c ". '$srcdir/tests/support/job.sh'; $3" 2>&1 | grep -E '^(PASS|FAIL|SKIP): ')
    if [[ $output == "$1: "*"$2"* ]]; then
        echo "PASS: planted: $3"
    else
        echo "FAIL: planted: $3 printed '$output', not '$1: ... $2'"
        failed=1
    fi
}

wants PASS '' 'job self 1 /bin/true'
wants PASS '' 'job shell 3 /bin/sh -c "[ \$WORLD_SIZE = 3 ]"'
wants PASS 'DIST_X=1 self' 'DIST_X=1 job self 1 /bin/sh -c "[ \$DIST_X = 1 ]"'
wants FAIL 'exit 1' 'job self 1 /bin/false'
wants FAIL 'exit 7' 'job shell 3 /bin/sh -c "[ \$RANK != 2 ] || exit 7"'
wants SKIP 'no reason' 'job self 1 /bin/sh -c "echo no reason; exit 77"'
wants SKIP '' 'OPENMPI_RUN=; job openmpi 2 /bin/true'
wants FAIL 'not done within 1 s' 'JOB_LIMIT=1; job self 1 /bin/sleep 20'
wants FAIL 'not done within 1 s' 'JOB_LIMIT=1; job shell 2 /bin/sleep 20'
wants FAIL 'not done within 1 s' 'JOB_LIMIT=1; job_fails x self 1 /bin/sleep 20'
wants FAIL 'processes left behind' 'job self 1 /bin/sh -c "sleep 20 & exit 0"'
wants PASS '' 'job_fails "the cause" self 1 /bin/sh -c "echo the cause; exit 1"'
wants FAIL 'the text is not' 'job_fails "the cause" self 1 /bin/false'
wants FAIL 'exit 0' 'job_fails "the cause" self 1 /bin/echo the cause'
wants FAIL 'ended by a signal' 'job_fails "the cause" self 1 /bin/sh -c "echo the cause; kill -SEGV \$\$"'
wants FAIL 'no case was run' ':'
wants PASS '' 'job_parallel job self 1 /bin/true; job_collect'
wants FAIL 'exit 1' 'job_parallel job self 1 /bin/false; job_collect'
wants FAIL 'it printed no result' 'job_parallel true; job_collect'

# A script whose only case was skipped exits with 77.
"$BASH" -c ". '$srcdir/tests/support/job.sh'; OPENMPI_RUN=; job openmpi 2 /bin/true" >/dev/null
tells '[ $? -eq 77 ]' "only skipped cases: exit 77"

# A test that hangs fails, prints where it hangs, and leaves no process.
hung=$(TEST_LIMIT=1 "$BASH" "$srcdir/tests/support/limit.sh" "$BASH" -c \
    'trap "" TERM; setsid sleep 61.5 & sleep 61.5' 2>/dev/null)
tells '[ $? -ne 0 ] && [[ $hung == "FAIL: "*"not done within 1 s"*"sleep 61.5"* ]] &&
    ! pgrep -f "^sleep 61.5" >/dev/null' "a test that hangs"
"$BASH" "$srcdir/tests/support/limit.sh" "$BASH" -c 'exit 77'
tells '[ $? -eq 77 ]' "a test with a limit keeps its result"

# counts LINE RESULT LOG: a test with the log LOG and the result RESULT must count as LINE.
counts()
{
    local output
    printf ':global-test-result: %s\n' "$2" >"$folder/a.trs"
    printf '%s' "$3" >"$folder/a.log"
    output=$("$BASH" "$srcdir/tests/support/count.sh" "$folder" 2>/dev/null)
    if [ "$output" = "$1" ]; then
        echo "PASS: planted: $2 counts as $1"
    else
        echo "FAIL: planted: $2 counts as $output, not $1"
        failed=1
    fi
}

run='[ RUN      ] one'
counts '1 passed, 0 failed, 0 skipped' PASS ''
counts '0 passed, 1 failed, 0 skipped' FAIL ''
counts '0 passed, 0 failed, 1 skipped' SKIP ''
counts '1 passed, 0 failed, 1 skipped' PASS "$run
[       OK ] one
[ RUN      ] two
[  SKIPPED ] two
[==========] 2 test(s) run.
[  SKIPPED ] two
"
counts '1 passed, 1 failed, 0 skipped' FAIL "$run
[       OK ] one
[ RUN      ] two
Segmentation fault
"
counts '0 passed, 1 failed, 0 skipped' FAIL "$run
[  FAILED  ] one
[  FAILED  ] 1 test(s), listed below:
[  FAILED  ] one
"
counts '1 passed, 1 failed, 0 skipped' FAIL "PASS: a
FAIL: b
    | its reason
"
told=$("$BASH" "$srcdir/tests/support/count.sh" "$folder" 2>&1 >/dev/null)
tells '[[ $told == *"FAIL: b"*"its reason"* ]]' "failures are printed with their reasons"
counts '1 passed, 1 failed, 0 skipped' ERROR "PASS: a
"
printf 'PASS: a\nFAIL: b\n    | \0its reason\n\0PASS: c\n' >"$folder/a.log"
told=$("$BASH" "$srcdir/tests/support/count.sh" "$folder" 2>&1)
tells '[[ $told == *"its reason"*"2 passed, 1 failed, 0 skipped" && $told != *"null byte"* ]]' "a log with null bytes"
exit $failed
