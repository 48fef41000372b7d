#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# configure without CUDA, NCCL, UCX and MPI: the summary lists them as missing, and the resulting
# library runs. It is built with ThreadSanitizer, for threads on two groups. In the long form each
# of the four is also left out alone.
. "$srcdir/tests/support/job.sh"

[ -z "${CHECK_SHORT-}" ] || { job_skip "configure" "the other suite tests scripts"; exit; }

[ ! -e "$srcdir/config.status" ] ||
    { job_skip "configure" "$srcdir is configured itself"; exit 0; }
optional="cuda nccl ucx mpi"
everything="--with-cuda=no --with-nccl=no --with-ucx=no --with-mpi=no"
compiler=$(sed -n 's/^CC = //p' "$builddir/Makefile")
says() { grep -qF -- "$1" "$job_output"; }

# configures FOLDER ARGUMENT...: all runs share the first one's cache of compiler checks, and each
# compiles a source once.
configures()
{
    mkdir -p "$job_folder/$1"
    (cd "$job_folder/$1" && "$srcdir/configure" -q --cache-file=../cache --disable-static \
        --disable-dependency-tracking CC="$compiler" \
        CFLAGS=-O0 "${@:2}") >"$job_output" 2>&1
}

# Those that were left out, and only they, have this line in the summary.
left_out()
{
    local name
    for name in $optional; do
        if [[ " $* " == *" $name "* ]]; then
            grep -qxiE " *$name +no \(--with-$name=no\)" "$job_output" || return 1
        elif says "(--with-$name=no)"; then
            return 1
        fi
    done
}

# Each missing library has a reason and the name of a package.
advised() { ! grep -E '^  [A-Za-z ]+ no( |$)' "$job_output" | grep -vE 'apt-get install|--with-'; }

job_fails_to_configure()
{
    job_check "configure fails: $*" eval "! configures fails $*"
    job_check "the error names the option" says "${1%%=*}"
}

# build FOLDER TARGET...: builds, with the output in $job_output.
build() { make -C "$job_folder/$1" -j2 "${@:2}" >"$job_output" 2>&1; }

# True if programs built with ThreadSanitizer run here.
has_tsan()
{
    echo 'int main(void) { return 0; }' >"$job_folder/try.c"
    $compiler -fsanitize=thread "$job_folder/try.c" -o "$job_folder/try" && "$job_folder/try"
} >/dev/null 2>&1

# Each "no" is followed by the reason and by what to install.
refused_with_advice()
{
    grep -qE '^  mpi +no +there is no module' "$job_output" &&
        ! grep -E '^  [a-z]+ +no ' "$job_output" | grep -v install
}

# instrumented FILE...: true if each of them calls ThreadSanitizer.
instrumented() { ! (cd "$job_folder/none" && grep -L __tsan_init "$@") | grep .; }

# smoke FOLDER: the library built there runs.
smoke()
{
    local built=$job_folder/$1
    unset DIST_PLUGIN_PATH
    DIST_BACKEND=gloo job shell 3 "$built/examples/hello_all_reduce"
    job_check "three ranks sum" says "rank 2 of 3: sum 3"
    DIST_BACKEND=mpi job_fails "backend 'mpi' cannot be used" self 1 \
        "$built/examples/hello_all_reduce"
    job_check "gloo is available" grep -qE '^  gloo +yes ' "$job_output"
    job_check "missing backends have install advice" refused_with_advice
}

# shellcheck disable=SC2086
job_check "configure without any of them" configures none $everything
# shellcheck disable=SC2086
job_check "the summary lists them as left out" left_out $optional
job_check "the other missing libraries have reasons" advised
job_fails_to_configure --with-mpi=/nonexistent

# The long form also leaves out each of them alone.
for names in "cuda mpi"; do
    [ -z "${CHECK_LONG-}" ] || break
    # shellcheck disable=SC2086
    job_check "configure without $names" configures "${names/ /-}" --no-create \
        $(printf -- '--with-%s=no ' $names)
    # shellcheck disable=SC2086
    job_check "the summary lists it as left out" left_out $names
    job_check "the other missing libraries have reasons" advised
done
for name in $optional; do
    [ -n "${CHECK_LONG-}" ] || break
    job_check "configure without $name" configures "$name" --with-"$name"=no
    job_check "the summary lists it as left out" left_out "$name"
    job_check "the other missing libraries have reasons" advised
    job_check "the build without $name" build "$name" all
done

targets="libdist.la examples/hello_all_reduce"
[ -z "${CHECK_LONG-}" ] || targets+=" dist_info"
two_groups=tests/jobs/two_groups
short_calls=tests/jobs/short_calls
if has_tsan; then
    # shellcheck disable=SC2086
    job_check "the build without any of them, with ThreadSanitizer" \
        build none $targets $two_groups $short_calls CFLAGS='-fsanitize=thread -O0'
    job_check "$two_groups and the library are instrumented" instrumented "$two_groups" .libs/libdist.so
    job shell 2 "$job_folder/none/$short_calls" gloo 300
    job shell 4 "$job_folder/none/$two_groups" gloo 1000
    DIST_TRANSPORT=tcp job shell 4 "$job_folder/none/$two_groups" gloo 1000
else
    job_skip "$two_groups with ThreadSanitizer" "programs that $compiler builds with it do not run here"
    # shellcheck disable=SC2086
    job_check "the build without any of them" build none $targets
fi
smoke none
