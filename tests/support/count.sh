#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# count.sh DIRECTORY: what make check left there, as one line "N passed, N failed, N skipped".
#
# Counts cases: those of a cmocka program, the PASS:, FAIL: and SKIP: lines of a script, and a
# program that names no case as one. A program that fails without naming a failed case (it
# crashed, say) is one failure. Names what failed on stderr. Exit 1 if anything failed or
# nothing passed.
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

passed=0 failed=0 skipped=0
while IFS= read -r trs; do
    log=${trs%.trs}.log
    result=$(sed -n 's/^:global-test-result: //p' "$trs")
    # The log ends with automake's own line "PASS name (exit status: 0)", without a colon.
    read -r p f s < <(awk "$cases" "$log")
    case $result in
    PASS) [ $((p + f + s)) -gt 0 ] || p=1 ;;
    SKIP) [ $((p + f + s)) -gt 0 ] || s=1 ;;
    *) [ "$f" -gt 0 ] || f=1 ;;
    esac
    [ "$f" -gt 0 ] && echo "failed: ${trs%.trs} ($f), see $log" >&2
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done < <(find "$1" -name '*.trs' | sort)

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
