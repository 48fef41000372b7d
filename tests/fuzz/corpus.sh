#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The kept inputs of every target: none crashes, leaks, or takes long.
set -u
program=$builddir/tests/fuzz/fuzz
status=0
for target in $("$program" --list); do
    timeout 120 "$program" "--target=$target" -runs=0 "$srcdir/tests/fuzz/corpus/$target" </dev/null ||
        { echo "FAIL: $target: the last input that is named (exit $?)"; status=1; }
done
exit $status
