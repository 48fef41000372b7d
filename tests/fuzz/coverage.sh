#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# make fuzz-coverage: the lines of each parser (tests/fuzz/parsers) that the kept inputs execute. Fails
# if it is not over FUZZ_COVERAGE per cent of all of them.
set -u
: "${srcdir:?run by make fuzz-coverage}" "${builddir:?}"
least=${FUZZ_COVERAGE:-90}
program=$builddir/tests/fuzz/fuzz
counts=$(mktemp -d "${TMPDIR:-/tmp}/dist-coverage.XXXXXX") || exit 1
trap 'rm -rf "$counts"' EXIT

# llvm NAME: the program of the compiler's own version, which alone reads its counts.
llvm()
{
    local version
    version=$(sed -n 's/.*clang version \([0-9]*\).*/\1/p' <<<"$(clang --version)")
    command -v "llvm-$1-$version" || command -v "llvm-$1"
}

cd "$srcdir" || exit 1
profdata=$(llvm profdata) && cov=$(llvm cov) && grep -q __llvm_profile_runtime "$program" ||
    { echo "SKIP: coverage: it needs llvm-cov and a build for it (configure CC=clang --enable-fuzzers)"
      exit 0; }

python3 tests/fuzz/corpus.py unpack "$counts/kept" || exit 1
for target in $("$program" --list); do
    LLVM_PROFILE_FILE=$counts/$target.profraw timeout 120 "$program" "--target=$target" -runs=0 \
        "$counts/kept/$target" >"$counts/log" 2>&1 </dev/null ||
        { echo "FAIL: coverage: $target fails on a kept input"; tail -n 20 "$counts/log"; exit 1; }
done
"$profdata" merge -sparse "$counts"/*.profraw -o "$counts/all" &&
    "$cov" export -format=lcov "$program" -instr-profile="$counts/all" >"$counts/lines" || exit 1

# Paths as of the source tree; of each file the number of lines with code, and of those executed.
awk -v source="$(pwd -P)/" -v build="$(cd "$builddir" && pwd -P)" -v least="$least" '
    function plain(path) {
        if (path !~ /^\//) path = build "/" path
        while (sub(/\/[^\/]+\/\.\.\//, "/", path)) ;
        return index(path, source) == 1 ? substr(path, length(source) + 1) : path
    }
    FNR == NR && /^SF:/ { file = plain(substr($0, 4)) }
    FNR == NR && /^LF:/ { has[file] = substr($0, 4) }
    FNR == NR && /^LH:/ { hit[file] = substr($0, 4) }
    FNR == NR { next }
    NF == 0 { begun = 1; print ""; next }
    /^#/ { if (begun) print substr($0, 3); next }
    !has[$1] { printf "%-44s is not in the program\n", $1; bad = 1; next }
    { printf "  %-44s %4d of %4d  %5.1f %%\n", $1, hit[$1], has[$1], 100 * hit[$1] / has[$1] }
    { lines += has[$1]; hits += hit[$1] }
    END {
        share = lines ? 100 * hits / lines : 0
        said = bad || share <= least ? "FAIL" : "PASS"
        printf "\n%s: coverage: %d of %d lines of the parsers, %.1f %%\n", said, hits, lines, share
        exit said == "FAIL"
    }' "$counts/lines" tests/fuzz/parsers
