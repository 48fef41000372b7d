#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# some.sh TESTS PROGRAMS WHAT MAKE...: called by make test. Selects the tests of TESTS that WHAT names,
# and runs MAKE with these tests and the programs of PROGRAMS that they use, so that no other program is
# built. A word of WHAT is a test, the name of a script in tests/jobs, or a folder of tests/unit.
set -u
: "${srcdir:?run by make test}"
read -ra tests <<<"$1"
read -ra programs <<<"$2"
read -ra what <<<"$3"
shift 3
[ ${#what[@]} -gt 0 ] || { echo 'usage: make test T="tests/unit/store/test_client shrink core"' >&2; exit 2; }

chosen=() needed=()
for word in "${what[@]}"; do
    found=no
    for test in "${tests[@]}"; do
        case $test in
        "$word" | "tests/jobs/$word.sh" | "tests/unit/$word/"* | "tests/$word/"*) chosen+=("$test") found=yes ;;
        esac
    done
    [ $found = yes ] || { echo "make test: there is no test or folder of tests named $word" >&2; exit 2; }
done

# Find the programs that the chosen scripts name, in the scripts or in the files that they source.
scripts=()
for test in "${chosen[@]}"; do
    case $test in
    *.sh) scripts+=("$srcdir/$test")
          for source in $(sed -n 's|^ *\. "$srcdir/\(tests/[a-z_/]*\.sh\)".*|\1|p' "$srcdir/$test" | grep -v /job.sh); do
              scripts+=("$srcdir/$source")
          done ;;
    *) needed+=("$test") ;;
    esac
done
if [ ${#scripts[@]} -gt 0 ]; then
    for program in "${programs[@]}"; do
        name=${program##*/}
        grep -qwF -- "${name%.*}" "${scripts[@]}" && needed+=("$program")
    done
fi
exec "$@" TESTS="${chosen[*]}" check_PROGRAMS="${needed[*]}"
