#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# --disable-shared: no module is built, the summary shows the reason, and a program links with
# libdist.a alone.
. "$srcdir/tests/support/job.sh"

[ -z "${CHECK_SHORT-}" ] || { job_skip "static build" "the other suite tests scripts"; exit; }
[ ! -e "$srcdir/config.status" ] ||
    { job_skip "static build" "$srcdir is configured itself"; exit 0; }
compiler=$(sed -n 's/^CC = //p' "$builddir/Makefile")
mkdir "$job_folder/build"
cd "$job_folder/build" || exit 1
unset DIST_PLUGIN_PATH

once=--no-create
[ -z "${CHECK_LONG-}" ] || once=
configures() { "$srcdir/configure" -q $once --cache-file=cache --disable-shared CC="$compiler" CFLAGS=-O0 "$@" >"$job_output" 2>&1; }
says() { grep -qF -- "$1" "$job_output"; }

job_check "a module that is asked for is refused" eval "! configures --with-ucx"
job_check "with the remedy" says "omit --disable-shared"
job_check "configure" configures
for name in MPI CUDA NCCL UCX; do
    job_check "no $name, with the reason" grep -qE "^ *$name +no \(--disable-shared" "$job_output"
done
[ -n "${CHECK_LONG-}" ] || exit 0
job_check "the static library can be built and installed" eval \
    "make -j2 install-libLTLIBRARIES install-data DESTDIR=$job_folder/stage >'$job_output' 2>&1"
pc=$(find "$job_folder/stage" -name libdist.pc)
export PKG_CONFIG_PATH=${pc%/*}
links()
{
    # shellcheck disable=SC2046
    $compiler "$srcdir/examples/hello_all_reduce.c" -o "$job_folder/hello" \
        $(pkg-config --cflags --libs libdist) >"$job_output" 2>&1
}
job_check "a program links by pkg-config alone" links
job shell 3 "$job_folder/hello"
job_check "three ranks sum" says "rank 2 of 3: sum 3"
DIST_BACKEND=mpi job_fails "configured with --disable-shared" self 1 "$job_folder/hello"
