#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# configure without CUDA, NCCL, UCX and MPI: the summary says so, and what is built runs. It is built
# with ThreadSanitizer, for threads on two groups. In the long form each of the four is left out of a
# build of its own.
. "$srcdir/tests/support/job.sh"

[ -z "${CHECK_SHORT-}" ] || { job_skip "configure" "the other suite tries scripts"; exit; }

[ ! -e "$srcdir/config.status" ] ||
    { job_skip "configure" "$srcdir is configured itself"; exit 0; }
optional="cuda nccl ucx mpi"
everything="--with-cuda=no --with-nccl=no --with-ucx=no --with-mpi=no"
compiler=$(sed -n 's/^CC = //p' "$builddir/Makefile")
says() { grep -qF -- "$1" "$job_output"; }

# configures FOLDER ARGUMENT...: all share what the first one found out about the compiler, and each
# compiles a source once.
configures()
{
    mkdir -p "$job_folder/$1"
    (cd "$job_folder/$1" && "$srcdir/configure" -q --cache-file=../cache --disable-static \
        --disable-dependency-tracking CC="$compiler" \
        CFLAGS=-O0 "${@:2}") >"$job_output" 2>&1
}

# What is left out has this line in the summary, and nothing else has.
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

# What is not there has a reason, and the name of a package.
advised() { ! grep -E '^  [A-Za-z ]+ no( |$)' "$job_output" | grep -vE 'apt-get install|--with-'; }

job_fails_to_configure()
{
    job_check "it fails: $*" eval "! configures fails $*"
    job_check "and says why" says "${1%%=*}"
}

# build FOLDER TARGET...: into $job_output.
build() { make -C "$job_folder/$1" -j2 "${@:2}" >"$job_output" 2>&1; }

# Does the compiler make programs with ThreadSanitizer that run here?
has_tsan()
{
    echo 'int main(void) { return 0; }' >"$job_folder/try.c"
    $compiler -fsanitize=thread "$job_folder/try.c" -o "$job_folder/try" && "$job_folder/try"
} >/dev/null 2>&1

# Each "no" says what is missing and what to install.
refused_with_advice()
{
    grep -qE '^  mpi +no +there is no module' "$job_output" &&
        ! grep -E '^  [a-z]+ +no ' "$job_output" | grep -v install
}

# instrumented FILE...: each calls ThreadSanitizer.
instrumented() { ! (cd "$job_folder/none" && grep -L __tsan_init "$@") | grep .; }

# smoke FOLDER: its library runs.
smoke()
{
    local built=$job_folder/$1
    unset DIST_PLUGIN_PATH
    DIST_BACKEND=gloo job shell 3 "$built/examples/hello_all_reduce"
    job_check "three ranks add up" says "rank 2 of 3: sum 3"
    DIST_BACKEND=mpi job_fails "backend 'mpi' cannot be used" self 1 \
        "$built/examples/hello_all_reduce"
    job_check "gloo is there" grep -qE '^  gloo +yes ' "$job_output"
    job_check "what is missing says what to install" refused_with_advice
}

# shellcheck disable=SC2086
job_check "configure without all of them" configures none $everything
# shellcheck disable=SC2086
job_check "the summary says so" left_out $optional
job_check "the rest has reasons" advised
job_fails_to_configure --with-mpi=/nonexistent

# The long form leaves out each of them by itself.
for names in "cuda mpi"; do
    [ -z "${CHECK_LONG-}" ] || break
    # shellcheck disable=SC2086
    job_check "configure without $names" configures "${names/ /-}" --no-create \
        $(printf -- '--with-%s=no ' $names)
    # shellcheck disable=SC2086
    job_check "the summary says so" left_out $names
    job_check "the rest has reasons" advised
done
for name in $optional; do
    [ -n "${CHECK_LONG-}" ] || break
    job_check "configure without $name" configures "$name" --with-"$name"=no
    job_check "the summary says so" left_out "$name"
    job_check "the rest has reasons" advised
    job_check "it builds without $name" build "$name" all
done

targets="libdist.la examples/hello_all_reduce"
[ -z "${CHECK_LONG-}" ] || targets+=" dist_info"
two_groups=tests/jobs/two_groups
short_calls=tests/jobs/short_calls
if has_tsan; then
    # shellcheck disable=SC2086
    job_check "it builds without all of them, with ThreadSanitizer" \
        build none $targets $two_groups $short_calls CFLAGS='-fsanitize=thread -O0'
    job_check "$two_groups and the library are" instrumented "$two_groups" .libs/libdist.so
    job shell 2 "$job_folder/none/$short_calls" gloo 300
    job shell 4 "$job_folder/none/$two_groups" gloo 1000
    DIST_TRANSPORT=tcp job shell 4 "$job_folder/none/$two_groups" gloo 1000
else
    job_skip "$two_groups with ThreadSanitizer" "$compiler builds nothing that runs with it"
    # shellcheck disable=SC2086
    job_check "it builds without all of them" build none $targets
fi
smoke none
