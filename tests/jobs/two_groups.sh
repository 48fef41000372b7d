#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Threads on two groups that share ranks; once more built with ThreadSanitizer.
program=tests/jobs/two_groups
tsan=two_groups.tsan # a folder in the build folder

# Builds the program with the sanitizer. Prints why it cannot be, if so.
build_with_tsan()
{
    local compiler
    compiler=$(sed -n 's/^CC = //p' "$builddir/Makefile")
    if [ -e "$srcdir/config.status" ]; then
        echo "the source folder is a build folder"
    elif ! { echo 'int main(void) { return 0; }' >try.c &&
        $compiler -fsanitize=thread try.c -o try && ./try; } 2>/dev/null; then
        echo "$compiler builds nothing that runs with ThreadSanitizer"
    else
        "$srcdir/configure" -q --disable-shared --with-mpi=no --with-ucx=no --with-nccl=no \
            --with-cuda=no CC="$compiler" CFLAGS='-fsanitize=thread -O1' >log 2>&1 &&
            make -s -j2 $program >>log 2>&1
    fi
}

# Before job.sh, which has others wait that measure.
rm -rf "${builddir:?}/$tsan"
mkdir "$builddir/$tsan" || exit 99
reason=
[ -n "${CHECK_SHORT-}" ] || reason=$(cd "$builddir/$tsan" && unset MAKEFLAGS MFLAGS && build_with_tsan)

. "$srcdir/tests/support/job.sh"
trap 'status=$?; rm -rf "$builddir/$tsan"; (exit $status); job_end' EXIT

job shell 4 $program gloo 1000
DIST_TRANSPORT=tcp job shell 4 $program gloo 1000
DIST_PROGRESS_THREAD=0 job shell 4 $program gloo 1000
job openmpi 4 $program mpi 200
job mpich 4 $program mpi 200
if [ -n "${CHECK_SHORT-}" ]; then
    : # other sanitizers are at work
elif [ -n "$reason" ]; then
    job_skip "$program with ThreadSanitizer" "$reason"
else
    [ -x "$builddir/$tsan/$program" ] || tail -n 20 "$builddir/$tsan/log"
    job_check "$program is built with ThreadSanitizer" grep -q __tsan_init "$builddir/$tsan/$program"
    job shell 4 $tsan/$program gloo 1000
    DIST_TRANSPORT=tcp job shell 4 $tsan/$program gloo 1000
fi
