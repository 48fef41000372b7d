#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# watched.sh tsan|valgrind TESTS JOBS MAKE...: runs the unit tests among TESTS, and the scripts
# tests/jobs/JOB.sh, where something watches them, and shows what that reports. MAKE... runs tests,
# as make check-TESTS does. For make check-tsan and check-valgrind.
#
# A report fails all of it, also that of a rank that was killed, or is to fail. Nothing of ours is suppressed.
# CHECK_WATCHED tells tests to be patient: all takes ten times as long and more.
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

# How many reports there are of the planted faults.
planted_reports()
{
    local fault files=("$reports"/*)
    for fault in "${planted_faults[@]}"; do
        mapfile -t files < <(grep -lsF "$fault" "${files[@]}" /dev/null)
    done
    echo ${#files[@]}
}

# Proof that a report fails the run: a test has faults, and each of a job's two ranks.
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

# Functions that write plans are pure: they have nothing that threads could share.
pure=none
[ "$CHECK_WATCHED" != tsan ] || pure='^tests/unit/(topology|collectives)/'
chosen=$(tr -s ' ' '\n' <<<"$tests" | grep '^tests/unit/' | grep -vE "$pure"
    for job in $jobs; do echo "tests/jobs/$job.sh"; done)

export TSAN_OPTIONS="second_deadlock_stack=1:log_path=$reports/tsan:${TSAN_OPTIONS-}"
# UCX patches libc's madvise, also that of a thread which ThreadSanitizer has forgotten already.
export UCX_MEM_MMAP_HOOK_MODE=none

proves "$@"
"$@" TESTS="$(tr '\n' ' ' <<<"$chosen")"
status=$?
# valgrind also says which calls of the kernel it does not know.
grep -sL ' at 0x' "$reports"/valgrind.* | xargs -r rm -f
for report in "$reports"/*; do
    [ -e "$report" ] || continue
    echo "FAIL: $report"
    head -n 60 "$report"
    status=1
done
exit $status
