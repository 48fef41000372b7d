#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# count.sh DIRECTORY: counts the results of make check in DIRECTORY, and prints "N passed, N failed, N skipped".
#
# A case is a test of a cmocka program, a PASS:, FAIL: or SKIP: line of a script, or a program that names
# no case. A program that fails without naming a failed case (for example, it crashed) is one failure.
# Prints each failure and the relevant lines of its log on stderr. Exit 1 if any case failed or none
# passed.
set -u

cases='
/\[ RUN      \]/ { if (open) fail++; open = 1; next }
open && /\[       OK \]/ { pass++; open = 0; next }
open && /\[  FAILED  \]/ { fail++; open = 0; next }
open && /\[  SKIPPED \]/ { skip++; open = 0; next }
/^PASS: / { pass++ }
/^FAIL: / { fail++ }
/^SKIP: / { skip++ }
END { print pass + 0, fail + open + 0, skip + 0 }'

# Open MPI 5 prints null bytes, which make grep treat a log as a binary file.
text() { tr -d '\0' <"$1"; }

# tell LOG: prints the log's failed cases with the lines after them, or its end if it names no failed case.
tell()
{
    local about
    about=$(text "$1" |
        grep -A 12 -E '^FAIL: |\[  FAILED  \]|\[   LINE   \]|ERROR: [A-Z][a-zA-Z]*Sanitizer')
    [ -n "$about" ] || about=$(text "$1" | tail -n 12)
    head -n 40 <<<"$about" | cut -c1-300 | sed 's/^/  | /'
}

passed=0 failed=0 skipped=0
while IFS= read -r trs; do
    log=${trs%.trs}.log
    result=$(sed -n 's/^:global-test-result: //p' "$trs")
    # The log ends with automake's own line "PASS name (exit status: 0)", without a colon.
    read -r p f s < <(text "$log" | awk "$cases")
    case $result in
    PASS) [ $((p + f + s)) -gt 0 ] || p=1 ;;
    SKIP) [ $((p + f + s)) -gt 0 ] || s=1 ;;
    *) [ "$f" -gt 0 ] || f=1 ;;
    esac
    if [ "$f" -gt 0 ]; then
        echo "failed: ${trs%.trs} ($f), see $log"
        tell "$log"
    fi >&2
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done < <(find "$1" -name '*.trs' | sort)

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
