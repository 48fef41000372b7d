#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# configure for another host ignores the libraries of the build machine. It uses a library only if
# the host's pkg-config, PKG_CONFIG_PATH or a --with-NAME=PREFIX names it, and only if it links. The
# host's name is invented and its compiler is the build machine's, so that every library would link.
. "$srcdir/tests/support/job.sh"

[ -z "${CHECK_SHORT-}" ] || { job_skip "cross compilation" "the other suite tests scripts"; exit; }
[ ! -e "$srcdir/config.status" ] ||
    { job_skip "cross compilation" "$srcdir is configured itself"; exit 0; }
compiler=$(sed -n 's/^CC = //p' "$builddir/Makefile")
export PKG_CONFIG_PATH=
unset PKG_CONFIG PKG_CONFIG_LIBDIR PKG_CONFIG_SYSROOT_DIR
mkdir "$job_folder/build" "$job_folder/bin" "$job_folder/pc"
cd "$job_folder/build" || exit 1

machine=$(uname -m)
host=$machine-disti-linux-gnu
# Reuses the cache of compiler checks. A changed PKG_CONFIG_PATH would make the cache invalid.
configures()
{
    [ ! -e ../cache ] || sed -i '/PKG_CONFIG/d' ../cache
    "$srcdir/configure" -q --no-create --host="$host" --cache-file=../cache --disable-static \
        CC="$compiler" CFLAGS=-O0 "$@" >"$job_output" 2>&1
}
says() { grep -qF -- "$1" "$job_output"; }
has() { grep -qE "^ *$1 +yes" "$job_output"; }
# has_none NAME...: the summary reports "no" for each.
has_none()
{
    local name
    for name in "$@"; do
        grep -qE "^  $name +no .*(apt-get install|--with-)" "$job_output" ||
            { echo "$name: $(grep -E "^  $name " "$job_output")"; return 1; }
    done
}

job_check "the host's hwloc is required" eval "! configures"
job_check "the error names the host" says "libhwloc-dev for $host"
job_check "configure for $host" configures --with-hwloc=no
job_check "no library of the build machine is used" has_none OpenSSL MPI CBLAS zlib jansson CUDA
job_check "the build machine's cmocka is not used" has_none "unit tests"

# A PREFIX with the build machine's jansson, and with a zlib that does not link.
mkdir -p "$job_folder/prefix/lib/pkgconfig"
here=$(pkg-config --variable=pcfiledir jansson 2>/dev/null)
if [ -n "$here" ]; then
    cp "$here/jansson.pc" "$job_folder/prefix/lib/pkgconfig"
    printf 'Name: zlib\nDescription: zlib\nVersion: 1.3\nLibs: -ldisti_of_another_machine\n' \
        >"$job_folder/pc/zlib.pc"
    PKG_CONFIG_PATH=$job_folder/pc
    job_check "configure with a prefix" configures --with-hwloc=no --with-jansson="$job_folder/prefix"
    job_check "jansson of the prefix is used" has jansson
    job_check "a zlib that does not link is not used" has_none zlib
else
    job_skip "jansson of a prefix" "pkg-config has no jansson here"
fi

# The host's own pkg-config.
printf '#!/bin/sh\nexec %s "$@"\n' "$(command -v pkg-config)" >"$job_folder/bin/$host-pkg-config"
chmod +x "$job_folder/bin/$host-pkg-config"
PKG_CONFIG_PATH=
PATH=$job_folder/bin:$PATH
if pkg-config --exists zlib; then
    job_check "configure with $host-pkg-config" configures --with-hwloc=no
    job_check "its libraries are used" has zlib
else
    job_skip "the host's pkg-config" "pkg-config has no zlib here"
fi
