#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Tests that left.sh finds the processes and files that a test leaves behind, and nothing else.
set -u
. "$srcdir/tests/support/left.sh"
LEFT_TRIES=5 failed=0

# wants TEXT COMMAND: checks that left_after prints TEXT after COMMAND, or nothing if TEXT is "".
wants()
{
    local said outer=${TMPDIR-none}
    said=$(left_before planted.$$; "$BASH" -c "$2"; left_after planted.$$)
    if { [ -n "$1" ] || [ -z "$said" ]; } && [[ $said == *"$1"* ]] && [ "${TMPDIR-none}" = "$outer" ]; then
        echo "PASS: left: $2"
    else
        echo "FAIL: left: $2 printed '$said', not '$1'"
        failed=1
    fi
}

wants '' ':'
wants '' 'f=$(mktemp) && rm "$f"'
wants '' 'sleep 0.2 & disown'
wants 'a-file' 'touch "$TMPDIR/a-file"'
wants 'folder/a-file' 'mkdir "$TMPDIR/folder" && touch "$TMPDIR/folder/a-file"'
wants 'sleep 77' 'sleep 77 & disown'
wants 'sleep 78' 'setsid sleep 78 >/dev/null 2>&1 &'

list=$(mktemp)
# planted NAME FILE: checks that FILE, created during a suite, is reported.
planted()
{
    left_suite_before "$list"
    touch "$2"
    if left_suite_after "$list" | grep -qF "$2"; then
        echo "PASS: left: $1"
    else
        echo "FAIL: left: $1: $2 is not found"
        failed=1
    fi
}
for place in /tmp /dev/shm; do
    named=$(mktemp -u "$place/dist-left-planted.XXXXXX")
    planted "a file in $place" "$named"
    exec 7<"$named"
    : >"$list"
    if left_suite_after "$list" | grep -qF "$named"; then
        echo "FAIL: left: $named is in use, but reported"
        failed=1
    else
        echo "PASS: left: a file in $place that a process uses"
    fi
    exec 7<&-
    rm -f "$named"
done
for name in vader_segment sm_segment; do
    named=$(mktemp -u "/dev/shm/$name.planted.XXXXXX")
    planted "shared memory of Open MPI, $name" "$named"
    rm -f "$named"
done
rm -f "$list"
exit $failed
