#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# make fuzz: runs every target for FUZZ_SECONDS, one per CPU at a time, starting from the kept
# inputs. An input that fails is stored in tests/fuzz/failed/ of the build: fix the fault, and add
# the input with corpus.py.
set -u
: "${srcdir:?run by make fuzz}" "${builddir:?}"
seconds=${FUZZ_SECONDS:-10} only=${FUZZ_TARGETS:-}
program=$builddir/tests/fuzz/fuzz
failed=$builddir/tests/fuzz/failed kept=$builddir/tests/fuzz/kept

# New inputs are stored in FUZZ_KEEP/TARGET if FUZZ_KEEP is set.
fuzz_one()
{
    local target=$1 found log status
    found=${FUZZ_KEEP:+$FUZZ_KEEP/$target}
    [ -n "$found" ] || found=$(mktemp -d)
    log=$failed/$target.log
    mkdir -p "$found" "$failed/$target"
    timeout $((seconds + 120)) "$program" "--target=$target" -max_total_time="$seconds" \
        -timeout=60 -rss_limit_mb=2048 -max_len=4096 -print_final_stats=1 -close_fd_mask=3 \
        -artifact_prefix="$failed/$target/" "$found" "$kept/$target" \
        >"$log" 2>&1 </dev/null
    status=$?
    [ -n "${FUZZ_KEEP:-}" ] || rm -rf "$found"
    if [ $status -eq 0 ]; then
        printf 'PASS: fuzz %s, %s inputs\n' "$target" \
            "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
        rm -rf "$log" "${failed:?}/$target"
    else
        printf 'FAIL: fuzz %s (exit %d)\n' "$target" $status
        grep -vE '^#[0-9]+[[:space:]]' "$log" | tail -n 60
    fi
    return $status
}

if [ ! -x "$program" ] || ! grep -q __sanitizer_cov "$program"; then
    echo "SKIP: fuzzing: this build has no libFuzzer (configure CC=clang --enable-fuzzers)"
    exit 0
fi
mkdir -p "$failed"
python3 "$srcdir/tests/fuzz/corpus.py" unpack "$kept" || exit 1
export -f fuzz_one
export seconds program failed kept
"$program" --list | grep -xE "${only:-.*}" | xargs -P "$(nproc)" -I{} "$BASH" -c 'fuzz_one {}'
