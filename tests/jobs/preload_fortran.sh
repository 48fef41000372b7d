#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Calls that reach MPI by its profiling names: Fortran programs of the three kinds, and C programs
# with a profiling tool, with libdist_mpi.so preloaded.
. "$srcdir/tests/support/job.sh"
job_needs_modules
cd "$builddir" || exit 99

# embedding.sh relinks libdist_mpi.so.
exec 7>"$builddir/tests/install.lock"
flock -s 7

kinds=("mpif.h" "use mpi" "use mpi_f08")
sanitize=$(sed -n 's/^DISTI_LDFLAGS = //p' Makefile)

library() { echo "$builddir/src/preload/$1/.libs/libdist_mpi.so"; }

# Prints the MPI's compiler of a language: mpirun.openmpi has its mpif90.openmpi beside it.
wrapper()
{
    local run=$OPENMPI_RUN suffix
    [ "$1" = openmpi ] || run=$MPICH_RUN
    suffix=${run##*/mpirun}
    suffix=${suffix##*/mpiexec}
    command -v "${run%/*}/$2${suffix%.hydra}"
}

# ---- programs ----

# Open MPI 4 has persistent collectives under the name of its extension.
persistent()
{
    if nm -D --defined-only "$(library "$1")" | grep -q ' MPI_Allreduce_init$'; then
        echo -DPERSISTENT_MPI
    elif nm -D --defined-only "$(library "$1")" | grep -q ' MPIX_Allreduce_init$'; then
        echo -DPERSISTENT_MPIX
    fi
}

# fortran MPI KIND NAME [FLAG...]: compiles the program as NAME in a folder of its own.
fortran()
{
    local mpi=$1 kind=$2 name=$3 folder=$job_folder/$3
    shift 3
    mkdir -p "$folder"
    # shellcheck disable=SC2046,SC2086
    "$(wrapper "$mpi" mpif90)" -O0 -w -cpp -ffree-line-length-none -fallow-argument-mismatch $sanitize \
        -J "$folder" -DKIND="$kind" $(persistent "$mpi") "$@" \
        "$srcdir/tests/jobs/preload_fortran.F90" -o "$folder/$name" >"$folder/log" 2>&1
}

# c MPI NAME FLAG...: compiles the tool, the program, or both in one.
c()
{
    local mpi=$1 name=$2
    shift 2
    # shellcheck disable=SC2086
    "$(wrapper "$mpi" mpicc)" -O1 $sanitize "$@" "$srcdir/tests/jobs/preload_tool.c" \
        -o "$job_folder/$mpi.$name" -ldl
}

# True if this machine has that binding.
has_binding()
{
    local use=${kinds[$2]}
    [ "$use" != mpif.h ] || use="include 'mpif.h'"
    printf '%s\nend\n' "$use" >"$job_folder/has.f90"
    "$(wrapper "$1" mpif90)" "$job_folder/has.f90" -o "$job_folder/has" >/dev/null 2>&1
}

build()
{
    local mpi=$1 sections=
    [ "$mpi" = openmpi ] || sections=-DSECTIONS # only mpi_f08 of MPICH
    fortran "$mpi" 0 "$mpi.0" &
    fortran "$mpi" 1 "$mpi.1" &
    wait
    fortran "$mpi" 2 "$mpi.2" $sections &
    # The library's binding calls both names with MPICH, the profiling names with Open MPI.
    fortran "$mpi" 2 "$mpi.library" -DLIBRARY -shared -fPIC &
    c "$mpi" program -DPROGRAM
    # Its import slots are read-only and filled at load time.
    c "$mpi" linked -DPROGRAM -DTOOL -fno-plt -Wl,-z,relro,-z,now
    c "$mpi" tool.so -DTOOL -shared -fPIC
    c "$mpi" old_tool.so -DTOOL -shared -fPIC -Wl,--hash-style=sysv
    wait
}

# run MPI RANKS PRELOADED PROGRAM ARG...: as job.
run()
{
    local mpi=$1 ranks=$2 preloaded=$3
    shift 3
    DIST_MPI_REPORT=1 job "$mpi" "$ranks" "$(job_preloaded "$preloaded")" "$@"
}

# run_watched MPI PROGRAM ARG...: as run, on 2 ranks under valgrind, which detects writes beyond the
# end of a request. Uninitialized memory and leaks of MPI itself are ignored.
run_watched()
{
    local mpi=$1 preloaded
    shift
    preloaded=$(job_preloaded "$(library "$mpi")")
    sed -i "s|exec|exec valgrind -q --error-exitcode=99 --undef-value-errors=no|" "$preloaded"
    DIST_MPI_REPORT=1 JOB_LIMIT=300 job "$mpi" 2 "$preloaded" "$@"
}

# ---- the report ----

row() { awk -v name="MPI_$1" '$2 == name { print $3, $4 }' "$job_output"; }
forwarded() { sed -n "s/^libdist: forwarded \([0-9]*\): $1.*/\1/p" "$job_output"; }

# all_served MPI RANKS: every kind in every form is served, except three all-reduces of each rank.
all_served()
{
    local forms=2
    [ -z "$(persistent "$1")" ] || forms=3
    awk -v rows=$((14 * forms)) -v ranks="$2" '
        $2 ~ /^MPI_/ { seen++; if ($3 == 0 || $4 != ($2 == "MPI_Allreduce") * 3 * ranks) bad = 1 }
        END { exit bad || seen != rows }' "$job_output" &&
        [ "$(forwarded "an operation")" = "$2" ] && [ "$(forwarded "a type")" = $((2 * $2)) ]
}

# tool_saw RANKS BEGUN BLOCKING NONBLOCKING: the numbers of each rank.
tool_saw() { [ "$(grep -c "^tool: begun $2, blocking $3, nonblocking $4\$" "$job_output")" = "$1" ]; }

# served RANKS BLOCKING NONBLOCKING: the numbers of each rank, with none forwarded.
served() { [ "$(row Allreduce), $(row Iallreduce)" = "$(($1 * $2)) 0, $(($1 * $3)) 0" ]; }

# ---- cases ----

kind_case()
{
    local mpi=$1 kind=$2 ranks=$3 program=$job_folder/$1.$2/$1.$2
    if [ ! -x "$program" ]; then
        has_binding "$mpi" "$kind" || { job_skip "$mpi: ${kinds[kind]}" "no such binding here"; return; }
        cp "$job_folder/$mpi.$kind/log" "$job_output"
        job_fail "$mpi: ${kinds[kind]}" "the program does not compile"
        return
    fi
    [ -z "${CHECK_LONG-}" ] || job "$mpi" "$ranks" "$program"
    run "$mpi" "$ranks" "$(library "$mpi")" "$program"
    job_check "$mpi: ${kinds[kind]}: all supported calls are served" all_served "$mpi" "$ranks"
}

# Requests have the size of the MPI's bindings: nothing reads or writes beyond their ends.
memory_cases()
{
    local mpi=$1 kind program
    for kind in 0 1 2; do
        # "use mpi" has the requests of mpif.h, so only the long form tests it. The other two
        # alternate.
        [ $kind != 1 ] || [ -n "${CHECK_LONG-}" ] || continue
        job_turn $((kind / 2)) 2 || continue
        program=$job_folder/$mpi.$kind/$mpi.$kind
        [ -x "$program" ] || continue
        run_watched "$mpi" "$program"
        job_check "$mpi: ${kinds[kind]}: valgrind saw served calls" all_served "$mpi" 2
    done
    [ -z "${CHECK_LONG-}" ] || run_watched "$mpi" "$builddir/tests/jobs/preload_$mpi" bold
}

# A C program may open a Fortran library; the binding is loaded with it.
library_case()
{
    local mpi=$1 ranks=$2 library=$job_folder/$1.library/$1.library how
    [ -x "$library" ] || { job_skip "$mpi: a library of Fortran" "no such binding here"; return; }
    for how in '' opened; do
        run "$mpi" "$ranks" "$(library "$mpi")" "$job_folder/$mpi.program" "$library" $how
        job_check "$mpi: a library of Fortran ${how:-begins MPI}" all_served "$mpi" "$ranks"
    done
}

# A tool counts each call once, and each is served once.
tool_cases()
{
    local mpi=$1 tool=$job_folder/$1.tool.so kind
    run "$mpi" 2 "$(library "$mpi")" "$job_folder/$mpi.linked"
    job_check "$mpi: a tool in the program" tool_saw 2 1 10 10
    job_check "$mpi: its calls are served" served 2 10 10
    for kind in tool old_tool; do # its names are only in the symbol table of older linkers
        run "$mpi" 2 "$job_folder/$mpi.$kind.so:$(library "$mpi")" "$job_folder/$mpi.program"
        job_check "$mpi: a tool preloaded" tool_saw 2 1 10 10
        job_check "$mpi: its calls are served" served 2 10 10
    done
    [ -x "$job_folder/$mpi.0/$mpi.0" ] || return
    run "$mpi" 2 "$tool:$(library "$mpi")" "$job_folder/$mpi.0/$mpi.0"
    job_check "$mpi: a tool and a Fortran program" grep -q '^tool: .*blocking 1' "$job_output"
    job_check "$mpi: its calls are served" all_served "$mpi" 2
}

# The library for one MPI is preloaded into a program of the other.
wrong_case()
{
    local mpi=$1 other=$2
    [ -x "$job_folder/$mpi.0/$mpi.0" ] && [ -e "$(library "$other")" ] || return
    job_fails "but the program runs" "$mpi" 2 "$(job_preloaded "$(library "$other")")" "$job_folder/$mpi.0/$mpi.0"
}

watches=no
if [ -n "$sanitize" ]; then job_skip "valgrind" "a build with sanitizers"
elif ! command -v valgrind >/dev/null; then job_skip "valgrind" "Debian: apt-get install valgrind"
else watches=yes
fi

ranks=3
for mpi in openmpi mpich; do
    [ -e "$(library $mpi)" ] || continue
    wrapper $mpi mpif90 >/dev/null || { job_skip "$mpi: Fortran" "no mpif90 beside its mpirun"; continue; }
    build $mpi
    for kind in 0 1 2; do
        kind_case $mpi $kind $ranks
    done
    library_case $mpi 2
    tool_cases $mpi
    [ "$watches" = no ] || memory_cases $mpi
    ranks=2 # MPICH busy-waits
done
wrong_case openmpi mpich
wrong_case mpich openmpi
