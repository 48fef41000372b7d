#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# watched.sh tsan|valgrind TESTS JOBS MAKE...: runs the unit tests among TESTS and the scripts
# tests/jobs/JOB.sh under ThreadSanitizer or valgrind, and prints the reports. Called by make check-tsan
# and make check-valgrind. MAKE... is the command that runs the tests in its argument TESTS=.
#
# Any report makes the run fail, also a report of a rank that was killed or must fail. No report about
# libdist is suppressed. If CHECK_WATCHED is set, tests allow for a slowdown of ten times and more.
set -u
: "${builddir:?run it by make check-tsan or check-valgrind}"
export CHECK_WATCHED=$1 CHECK_SHORT=1 TEST_LIMIT=3600
tests=$2 jobs=$3
shift 3

stop() { echo "make check-$CHECK_WATCHED: $*" >&2; exit 1; }
sanitize=$(sed -n 's/^DISTI_LDFLAGS = //p' "$builddir/Makefile")
case $CHECK_WATCHED in
tsan)
    [[ $sanitize == *thread* ]] || stop "configure a build with --enable-sanitizers=thread"
    planted_faults=('data race')
    ;;
valgrind)
    planted_faults=('Invalid read' 'definitely lost')
    [ -z "$sanitize" ] || stop "configure a build without sanitizers"
    command -v valgrind >/dev/null || stop "valgrind is missing. On Debian: apt-get install valgrind"
    ;;
esac

reports=$builddir/tests/reports
rm -rf "$reports"
mkdir -p "$reports"

# Prints the number of reports of the planted faults.
planted_reports()
{
    local fault files=("$reports"/*)
    for fault in "${planted_faults[@]}"; do
        mapfile -t files < <(grep -lsF "$fault" "${files[@]}" /dev/null)
    done
    echo ${#files[@]}
}

# Tests that reports make the run fail: runs a unit test with planted faults, and a job whose two ranks
# have them. Each of the three processes must have a report.
proves()
{
    local status
    "$@" TESTS="tests/support/planted_fault tests/support/planted_job.sh" \
        >"$builddir/tests/planted.log" 2>&1
    status=$?
    if [ $status -eq 0 ] || [ "$(planted_reports)" -ne 3 ]; then
        cat "$builddir/tests/planted.log"
        stop "the planted faults (${planted_faults[*]}) were not all seen; see $reports"
    fi
    rm -f "$reports"/* "$builddir/tests/planted.log" "$builddir"/tests/support/planted_*.{log,trs}
    echo "PASS: planted: ${planted_faults[*]}"
}

# The unit tests of functions that write plans are omitted: threads share nothing in these functions.
pure=none
[ "$CHECK_WATCHED" != tsan ] || pure='^tests/unit/(topology|collectives)/'
chosen=$(tr -s ' ' '\n' <<<"$tests" | grep '^tests/unit/' | grep -vE "$pure"
    for job in $jobs; do echo "tests/jobs/$job.sh"; done)

export TSAN_OPTIONS="second_deadlock_stack=1:log_path=$reports/tsan:${TSAN_OPTIONS-}"
# UCX's hook of madvise would also run in an ending thread whose state ThreadSanitizer has already freed.
export UCX_MEM_MMAP_HOOK_MODE=none

proves "$@"
"$@" TESTS="$(tr '\n' ' ' <<<"$chosen")"
status=$?
# A report without a stack is a note, such as that valgrind does not support a system call.
grep -sL ' at 0x' "$reports"/valgrind.* | xargs -r rm -f
for report in "$reports"/*; do
    [ -e "$report" ] || continue
    echo "FAIL: $report"
    head -n 60 "$report"
    status=1
done
exit $status
