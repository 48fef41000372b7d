#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds without warnings for other compilers, C libraries and machines, and runs four ranks of each
# build. The builds have neither MPI nor hwloc, so they need only a C library.
. "$srcdir/tests/support/job.sh"

[ -n "${CHECK_LONG-}" ] || { job_skip "other machines" "in the long form only"; exit; }
[ ! -e "$srcdir/config.status" ] || { job_skip "other machines" "$srcdir is configured itself"; exit; }
compiler=$(sed -n 's/^CC = //p' "$builddir/Makefile")
export PKG_CONFIG_LIBDIR=/nonexistent
unset DIST_PLUGIN_PATH PKG_CONFIG_PATH

# builds FOLDER CONFIGURE-ARGUMENT...: warnings are errors, also those of the linker.
builds()
{
    mkdir -p "$job_folder/$1"
    (cd "$job_folder/$1" && "$srcdir/configure" -q --enable-werror --disable-static \
        --disable-dependency-tracking --with-hwloc=no --with-mpi=no --with-ucx=no --with-cuda=no "${@:2}" &&
        make -j2) >"$job_output" 2>&1 && ! grep -E 'warning: (.*\[-W|.*relocation)' "$job_output"
}
says() { grep -qF -- "$1" "$job_output"; }

# runs FOLDER COMMAND...: four ranks, run by the command.
runs()
{
    DIST_BACKEND=gloo job shell 4 "$BASH" -c 'exec "$@"' run "${@:2}" \
        "$job_folder/$1/examples/.libs/hello_all_reduce"
    job_check "$1: four ranks sum" says "rank 3 of 4: sum 6"
}

# optimized COMPILER FLAGS
optimized()
{
    local folder=${1##*/}$2
    folder=${folder//[ =]/}
    job_check "no warning with $1 $2" builds "$folder" CC="$1" CFLAGS="$2"
    runs "$folder" env LD_LIBRARY_PATH="$job_folder/$folder/.libs"
}
optimized "$compiler" "-O3 -flto=auto"
optimized "$compiler" "-Os -D_FORTIFY_SOURCE=3"
if [ "${compiler##*/}" != clang ] && command -v clang >/dev/null; then
    optimized clang -O3
else
    job_skip "clang" "no clang here, or the whole build is clang's"
fi

# 32 bits, with the loader of the cross compiler's C library.
if i686-linux-gnu-gcc -x c -o /dev/null - <<<'int main(void) { return 0; }' 2>/dev/null; then
    job_check "no warning with 32 bits" builds i686 --host=i686-linux-gnu CFLAGS=-O2
    root=/usr/i686-linux-gnu/lib
    job_check "a CPU without 64-bit atomics is refused" eval \
        "! builds i386 --host=i686-linux-gnu CFLAGS='-O2 -march=i386'"
    job_check "the error has the remedy" says "as -march=i686"
    runs i686 $root/ld-linux.so.2 --library-path "$root:$job_folder/i686/.libs"
else
    job_skip "32 bits" "no i686-linux-gnu-gcc here (Debian: gcc-i686-linux-gnu libc6-dev-i386-cross)"
fi

if aarch64-linux-gnu-gcc -x c -o /dev/null - <<<'int main(void) { return 0; }' 2>/dev/null; then
    job_check "no warning for aarch64" builds aarch64 --host=aarch64-linux-gnu CFLAGS=-O2
    if command -v qemu-aarch64 >/dev/null; then
        runs aarch64 qemu-aarch64 -L /usr/aarch64-linux-gnu \
            -E LD_LIBRARY_PATH="$job_folder/aarch64/.libs:/usr/aarch64-linux-gnu/lib"
    else
        job_skip "ranks of aarch64" "no qemu-aarch64 here (Debian: qemu-user)"
    fi
else
    job_skip "aarch64" "no aarch64-linux-gnu-gcc here (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross)"
fi

# musl. Debian's has neither the kernel's headers nor sys/queue.h, which Alpine packages separately.
if musl-gcc -x c -o /dev/null - <<<'int main(void) { return 0; }' 2>/dev/null; then
    headers=$job_folder/headers
    mkdir -p "$headers/sys"
    ln -s /usr/include/linux /usr/include/asm-generic "$headers"
    ln -s "/usr/include/$(gcc -print-multiarch)/asm" "$headers"
    ln -s "/usr/include/$(gcc -print-multiarch)/sys/queue.h" "$headers/sys"
    job_check "no warning with musl" builds musl CC=musl-gcc CXX=no --with-openssl=no \
        CPPFLAGS="-idirafter $headers" CFLAGS=-O2
    runs musl env LD_LIBRARY_PATH="$job_folder/musl/.libs"
    DIST_BACKEND=gloo job self 4 "$job_folder/musl/distrun" --nproc-per-node=4 \
        "$job_folder/musl/examples/hello_all_reduce"
else
    job_skip "musl" "no musl-gcc here (Debian: musl-tools)"
fi
