#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# make fuzz-coverage: prints which lines of each parser (tests/fuzz/parsers) the kept inputs
# execute. Fails unless these are more than FUZZ_COVERAGE per cent of all lines.
set -u
: "${srcdir:?run by make fuzz-coverage}" "${builddir:?}"
least=${FUZZ_COVERAGE:-90}
program=$builddir/tests/fuzz/fuzz
counts=$(mktemp -d "${TMPDIR:-/tmp}/dist-coverage.XXXXXX") || exit 1
trap 'rm -rf "$counts"' EXIT

# llvm NAME: prints the name of the LLVM tool of the compiler's version. Tools of other versions cannot
# read its counts.
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

# Lists, with paths relative to the source tree, each file's lines of code with their counts, and the
# first lines of functions.
awk -v source="$(pwd -P)/" -v build="$(cd "$builddir" && pwd -P)" -v least="$least" '
    function plain(path) {
        if (path !~ /^\//) path = build "/" path
        while (sub(/\/[^\/]+\/\.\.\//, "/", path)) ;
        return index(path, source) == 1 ? substr(path, length(source) + 1) : path
    }
    # True if the function is named in the row of the table.
    function counts(name,    i) {
        sub(/^.*:/, "", name)
        sub(/^disti_/, "", name)
        for (i = 2; i <= NF; i++)
            if (index(name, $i) == 1) return 1
        return NF == 1
    }
    # Counts the lines of a file, which llvm-cov lists in order.
    function count(file,    i, line, on) {
        has = hit = 0
        on = NF == 1
        for (line = 1; line <= last[file]; line++) {
            if ((file, line) in begins) on = counts(begins[file, line])
            if (on && (file, line) in times) { has++; hit += times[file, line] > 0 }
        }
    }
    FNR == NR && /^SF:/ { file = plain(substr($0, 4)) }
    FNR == NR && /^FN:/ { split(substr($0, 4), part, ","); begins[file, part[1]] = part[2] }
    FNR == NR && /^DA:/ {
        split(substr($0, 4), part, ",")
        times[file, part[1]] += part[2]
        if (part[1] + 0 > last[file]) last[file] = part[1] + 0
    }
    FNR == NR { next }
    NF == 0 { begun = 1; print ""; next }
    /^#/ { if (begun) print substr($0, 3); next }
    { count($1) }
    !has { printf "%-44s: nothing of this row is in the program\n", $0; bad = 1; next }
    { printf "  %-44s %4d of %4d  %5.1f %%\n", $1, hit, has, 100 * hit / has }
    { lines += has; hits += hit }
    END {
        share = lines ? 100 * hits / lines : 0
        said = bad || share <= least ? "FAIL" : "PASS"
        printf "\n%s: coverage: %d of %d lines of the parsers, %.1f %%\n", said, hits, lines, share
        exit said == "FAIL"
    }' "$counts/lines" tests/fuzz/parsers
