#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs every target on its kept inputs. None may crash, leak, or take long.
set -u
program=$builddir/tests/fuzz/fuzz kept=$builddir/tests/fuzz/kept
command -v python3 >/dev/null || { echo "SKIP: no python3, which unpacks the kept inputs"; exit 77; }
python3 "$srcdir/tests/fuzz/corpus.py" unpack "$kept" || exit 1
status=0
for target in $("$program" --list); do
    timeout 120 "$program" "--target=$target" -runs=0 "$kept/$target" </dev/null ||
        { echo "FAIL: $target: on the last input printed above (exit $?)"; status=1; }
done
exit $status
