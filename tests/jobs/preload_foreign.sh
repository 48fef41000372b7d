#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs of an MPI whose ABI libdist does not support: MPI's standard ABI, or an unknown one.
# libdist_mpi.so passes every call to that MPI after one warning, and backend mpi prints what to do.
. "$srcdir/tests/support/job.sh"
job_needs_modules
cd "$builddir" || exit 99

# embedding.sh relinks libdist_mpi.so.
exec 7>"$builddir/tests/install.lock"
flock -s 7

compiler=$(sed -n 's/^CC = //p' Makefile)
sanitize=$(sed -n 's/^DISTI_LDFLAGS = //p' Makefile)
library() { echo "$builddir/src/preload/$1/.libs/libdist_mpi.so"; }

# compile FLAG...
compile()
{
    # shellcheck disable=SC2086
    $compiler -std=gnu11 -O1 $sanitize "$@" -ldl >"$job_output" 2>&1 && return
    job_fail "compile $*" "exit $?"
    exit 1
}

# build FOLDER SONAME [FLAG...]: makes an MPI of that name, and programs for it.
build()
{
    local folder=$job_folder/$1 soname=$2 program=$srcdir/tests/jobs/preload_foreign.c
    local linked
    shift 2
    mkdir "$folder"
    compile "$@" -shared -fPIC "$srcdir/tests/jobs/preload_foreign_mpi.c" "-Wl,-soname,$soname" \
        -o "$folder/$soname"
    linked=("$folder/$soname" "-Wl,-rpath,$folder")
    compile -DPROGRAM -DLIBRARY -DLINKED "$program" "${linked[@]}" -o "$folder/lazy" -Wl,-z,lazy
    compile -DPROGRAM -DLIBRARY -DLINKED "$program" "${linked[@]}" -o "$folder/now" -fno-plt \
        -Wl,-z,relro,-z,now
    compile -DLIBRARY -shared -fPIC "$program" "${linked[@]}" -o "$folder/libcalls.so"
    compile -DPROGRAM -DLINKED "$program" "$folder/libcalls.so" "-Wl,-rpath,$folder" -o "$folder/deep"
    compile -DPROGRAM "$program" -o "$folder/opens"
    compile -DTOOL -shared -fPIC "$program" "${linked[@]}" -o "$folder/libtool.so"
}

# The ranks must not be taken from the variables of an MPI launcher.
unset PMI_RANK PMIX_RANK OMPI_COMM_WORLD_RANK SLURM_PROCID

warned_once() { [ "$(grep -c "^libdist: MPI serves all calls itself: .*$1" "$job_output")" = 1 ]; }
quiet() { ! grep -q libdist "$job_output"; }

# passes FOR FOLDER WARNING PROGRAM ARG...
passes()
{
    local mpi=$1 folder=$job_folder/$2 warning=$3 program=$4
    shift 4
    job self 1 "$(job_preloaded "$(library "$mpi")")" "$folder/$program" "$@"
    job_check "$mpi: one warning" warned_once "$warning"
}

# A tool sees the program's calls, whether it is loaded before or after this library.
tool_cases()
{
    local mpi=$1 folder=$job_folder/$2 order
    for order in "$folder/libtool.so:$(library "$mpi")" "$(library "$mpi"):$folder/libtool.so"; do
        job self 1 "$(job_preloaded "$order")" "$folder/lazy"
        job_check "$mpi: the tool sees each call once" grep -q '^tool: begun 1, reduced 1$' "$job_output"
    done
}

# The MPI's files alone show its ABI, without MPI_Init.
standard_cases()
{
    local mpi=$1 calls=$job_folder/standard/libcalls.so
    for program in lazy now deep; do
        passes "$mpi" standard "standard ABI (libmpi_abi.so.1)" $program
    done
    passes "$mpi" standard "standard ABI (libmpi_abi.so.1)" opens opened "$calls"
    passes "$mpi" standard "standard ABI (libmpi_abi.so.1)" lazy later "$calls"
    job self 1 "$(job_preloaded "$(library "$mpi")")" "$job_folder/standard/lazy" session
    PMI_RANK=1 job self 1 "$(job_preloaded "$(library "$mpi")")" "$job_folder/standard/lazy"
    job_check "$mpi: no warning on another rank" quiet
}

unknown_cases()
{
    local mpi=$1
    for program in lazy now; do
        passes "$mpi" renamed "standard ABI (librenamed.so.1)" $program
        passes "$mpi" unknown "(libstrange.so.1: Foreign MPI 1.0)" $program
    done
    passes "$mpi" unknown "(libstrange.so.1: Foreign MPI 1.0)" lazy later "$job_folder/unknown/libcalls.so"
}

build standard libmpi_abi.so.1 -DABI_VERSION=1
build renamed librenamed.so.1 -DABI_VERSION=1
build unknown libstrange.so.1 -DABI_VERSION=-1
for mpi in openmpi mpich; do
    [ -e "$(library $mpi)" ] || { job_skip "$mpi: libdist_mpi.so" "not built here"; continue; }
    standard_cases $mpi
    unknown_cases $mpi
    tool_cases $mpi standard
    tool_cases $mpi unknown
done

# A program of libdist: the MPI is found, but the module is for another one.
refused()
{
    job_fails "$1" self 1 "$(job_preloaded "$2")" "$builddir/dist_bench" -n 1 --backend mpi barrier
}
refused "built for MPI's standard ABI (libmpi_abi.so.1)" "$job_folder/standard/libmpi_abi.so.1"
refused "(libstrange.so.1: Foreign MPI 1.0) is neither Open MPI" "$job_folder/unknown/libstrange.so.1"
