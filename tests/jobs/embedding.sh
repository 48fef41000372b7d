# SPDX-License-Identifier: BSD-3-Clause
# The examples against an installation that was moved: pkg-config and CMake, gcc and clang, C and
# C++; and the plug-ins, which are built outside the tree and tested with the program that authors
# have.
. "$srcdir/tests/support/job.sh"
job_needs_modules # static_build.sh tests the static library

examples=$srcdir/examples
# libtool relinks libdist_mpi.so in the build tree: no other test may use it meanwhile (preload.sh
# does).
exec 7>"$builddir/tests/install.lock"
flock 7
make -C "$builddir" install DESTDIR="$job_folder/stage" >"$job_output" 2>&1 7>&- 9>&- ||
    { job_fail "make install" "see above"; exit 1; }
exec 7>&-

# make install prints advice if an installed program reports that the loader does not find the
# library.
mkdir "$job_folder/bin"
printf '#!/bin/sh\necho "dist_info: error while loading shared libraries: libdist.so.0: cannot open" >&2\nexit 127\n' \
    >"$job_folder/bin/dist_info"
chmod +x "$job_folder/bin/dist_info"
ldconfig_hint() { make -C "$builddir" -s install-hint bindir="$1" "${@:2}" 2>&1 | grep -q 'run ldconfig as root'; }
job_check "make install names ldconfig" ldconfig_hint "$job_folder/bin"
job_check "not for a package" eval '! ldconfig_hint "$job_folder/bin" DESTDIR=/stage'

# The installation is found here, whatever its prefix.
lib=$(find "$job_folder/stage" -name libdist.so)
[ -n "$lib" ] || { job_fail "make install" "no libdist.so was installed"; exit 1; }
relative=${lib#"$job_folder/stage"}
mv "$job_folder/stage" "$job_folder/moved"
libdir=$(dirname "$job_folder/moved$relative")
export LD_LIBRARY_PATH=$libdir
unset DIST_PLUGIN_PATH
sanitize=$(sed -n 's/^DISTI_LDFLAGS = //p' "$builddir/Makefile")

pc() { PKG_CONFIG_PATH=$libdir/pkgconfig pkg-config "$@" libdist; }

# build COMPILER LANGUAGE STANDARD EXAMPLE OUTPUT
build()
{
    # shellcheck disable=SC2046,SC2086
    "$1" -x "$2" "-std=$3" -Wall -Wextra -Werror -O1 $sanitize $(pc --cflags) "$examples/$4.c" \
        -o "$job_folder/$5" $(pc --libs) -lm -pthread >"$job_output" 2>&1
}

says() { grep -qF -- "$1" "$job_output"; }

# Builds every example in one way. Runs the programs of the first two
# ways; in the long form those of all ways.
tries=0
try()
{
    local how="$1 $2"
    for example in hello_all_reduce ddp trainer trainer_single tensor_parallel embed_oob; do
        if build "$1" "$2" "$3" $example $example; then
            job_pass "pkg-config: $how: $example builds"
        else
            job_fail "pkg-config: $how: $example builds" "see above"
            return
        fi
    done
    tries=$((tries + 1))
    [ $tries -le 2 ] || [ -n "${CHECK_LONG-}" ] || return 0
    job self 1 "$job_folder/hello_all_reduce"
    job_check "one process alone is a world of one" says "rank 0 of 1: sum 0"
    job shell 3 "$job_folder/hello_all_reduce"
    job_check "three ranks sum" says "rank 2 of 3: sum 3"
    job shell 3 "$job_folder/ddp"
    job_check "three ranks train together" says "rank 2 of 3: 3.000 * x + -2.000"
    job self 4 "$job_folder/embed_oob"
    job_check "ranks join through the program's own all-gather" says "rank 3 of 4: product 24"
}

job_command() { command -v "$1" >/dev/null; }
try gcc c gnu11
for compiler in "g++ c++ c++11" "clang c gnu11" "clang++ c++ c++17"; do
    read -r compiler language standard <<<"$compiler"
    if ! job_command "$compiler"; then
        job_skip "pkg-config: $compiler" "there is no $compiler"
    elif [ -n "$sanitize" ] && [[ $compiler == clang* ]]; then
        job_skip "pkg-config: $compiler" "gcc's sanitizers do not mix with clang's"
    else
        try "$compiler" "$language" "$standard"
    fi
done

# Without LD_LIBRARY_PATH: the program contains the library's folder, or the library itself.
found_at_start()
{
    # shellcheck disable=SC2046,SC2086
    gcc $sanitize $(pc --cflags) "$examples/hello_all_reduce.c" -o "$job_folder/found" "${@}" \
        >"$job_output" 2>&1 && job_saved=$LD_LIBRARY_PATH && unset LD_LIBRARY_PATH ||
        { job_fail "hello_all_reduce with $*" "see above"; return; }
    job shell 2 "$job_folder/found"
    job_check "two ranks sum" says "rank 1 of 2: sum 1"
    export LD_LIBRARY_PATH=$job_saved
}
# shellcheck disable=SC2046
found_at_start $(pc --libs) "-Wl,-rpath,$libdir"
# shellcheck disable=SC2046
[ -e "$libdir/libdist.a" ] &&
    found_at_start $(pc --static --libs | sed s/-ldist/-l:libdist.a/)

# The trainer: one rank and four ranks compute the same result.
job self 1 "$job_folder/trainer_single"
cp "$job_output" "$job_folder/single"
job shell 4 "$job_folder/trainer"
same_losses()
{
    paste "$job_folder/single" "$job_output" | awk '
        NF != 8 || $2 != $6 { bad = 1 }
        { d = $4 - $8; if (d < 0) d = -d; if (d > 2e-4) bad = 1 }
        END { exit bad || NR != 5 }'
}
job_check "four ranks compute the result of one" same_losses

# Tensor parallelism: the first line of the output contains the tokens.
job self 1 "$job_folder/tensor_parallel" 32
head -n 1 "$job_output" >"$job_folder/tokens"
various() { [ "$(wc -w <"$1")" = 32 ] && [ "$(tr ' ' '\n' <"$1" | sort -u | wc -l)" -gt 10 ]; }
job_check "one rank prints 32 tokens, not always the same" various "$job_folder/tokens"
for ranks in 2 4; do
    job shell $ranks "$job_folder/tensor_parallel" 32
    job_check "$ranks ranks print the tokens of one" cmp "$job_folder/tokens" <(head -n 1 "$job_output")
done
job_fails "8 heads: start 1, 2, 4 or 8 ranks, not 3" shell 3 "$job_folder/tensor_parallel"
# The following tests are about installation and building.
[ -z "${CHECK_SHORT-}" ] || exit 0

# Rank 0's parameters are used, whatever the initial parameters of the other ranks.
sed -e 's/^#include <math.h>/&\n#include <stdlib.h>/' \
    -e 's/^    make_data();/&\n    weight[0] += (float)atoi(getenv("RANK"));/' \
    "$examples/trainer.c" >"$job_folder/spoilt.c"
# shellcheck disable=SC2046,SC2086
gcc -std=gnu11 -O1 $sanitize $(pc --cflags) "$job_folder/spoilt.c" -o "$job_folder/spoilt" \
    $(pc --libs) -lm -pthread >"$job_output" 2>&1 || job_fail "a trainer that is spoilt" "see above"
job shell 4 "$job_folder/spoilt"
job_check "all ranks begin with rank 0's parameters" same_losses

# docs/embedding.md shows the difference between the two trainers, and it is short.
shown_diff()
{
    diff <(sed -n '/^```diff/,/^```$/p' "$srcdir/docs/embedding.md" | grep '^[-+]' | tail -n +3) \
        <(diff -U1 "$examples/trainer_single.c" "$examples/trainer.c" | grep '^[-+]' | tail -n +3)
}
job_check "docs/embedding.md shows the trainer's difference" shown_diff
short_diff()
{
    [ "$(diff "$examples/trainer_single.c" "$examples/trainer.c" | grep -c '^>')" -le 15 ]
}
job_check "at most 15 lines of the trainer change" short_diff

# cmake_build FOLDER ARGUMENTS...
cmake_build()
{
    local folder=$job_folder/$1
    shift
    { cmake -S "$examples" -B "$folder" -DCMAKE_PREFIX_PATH="$(dirname "$libdir")" \
        -DCMAKE_C_FLAGS="-Wall -Wextra -Werror $sanitize" \
        -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror $sanitize" "$@" && cmake --build "$folder"; } \
        >"$job_output" 2>&1
}
if job_command cmake; then
    for language in OFF ON; do
        if cmake_build "cmake-$language" -DAS_CXX=$language; then
            job_pass "CMake, as C++: $language: builds"
            job shell 2 "$job_folder/cmake-$language/hello_all_reduce"
            job_check "two ranks sum" says "rank 1 of 2: sum 1"
        else
            job_fail "CMake, as C++: $language" "see above"
        fi
    done
else
    job_skip "CMake" "there is no cmake"
fi

# Inside an MPI program, and loading the mpi module from the moved folder.
# inside LAUNCHER COMPILER
inside()
{
    # shellcheck disable=SC2046
    "$2" -Wall -Wextra $sanitize $(pc --cflags) "$examples/embed_mpi_comm.c" \
        -o "$job_folder/embed_$1" $(pc --libs) >"$job_output" 2>&1 ||
        { job_fail "embed_mpi_comm with $2" "see above"; return; }
    job "$1" 4 "$job_folder/embed_$1"
    job_check "odd ranks form a group" says "MPI rank 3 is rank 1 of 2: sum 4"
    DIST_BACKEND=mpi job "$1" 2 "$job_folder/hello_all_reduce"
    job_check "module mpi is found beside the moved library" says "rank 1 of 2: sum 1"
}
for mpi in openmpi mpich; do
    if ! job_command mpicc.$mpi; then
        job_skip "embed_mpi_comm with $mpi" "there is no mpicc.$mpi"
    elif [ ! -e "$libdir/dist/dist_mpi_$mpi.so" ]; then
        job_skip "embed_mpi_comm with $mpi" "libdist was built without it"
    else
        inside $mpi mpicc.$mpi
    fi
done

# ---- the plug-ins ----

plugin=$job_folder/plugin
build_plugin()
{
    mkdir "$plugin" && PKG_CONFIG_PATH=$libdir/pkgconfig MAKEFLAGS='' make -C "$plugin" \
        -f "$examples/plugin-minimal/Makefile" CFLAGS="-O1 -Wshadow -Werror $sanitize" \
        >"$job_output" 2>&1
}
wants_ours() { nm -D --undefined-only "$plugin"/dist_*.so | grep -E ' disti?_'; }
wants_nothing() { ! wants_ours >"$job_output"; }

try_plugin()
{
    local ranks tried="1 4"
    [ -z "${CHECK_LONG-}" ] || tried="1 2 4 8"
    for ranks in $tried; do
        job self "$ranks" "$(dirname "$libdir")/bin/dist_info" selftest --transport minimal \
            --ranks "$ranks" --brief
    done
    job self 3 "$(dirname "$libdir")/bin/dist_info" selftest --backend relay \
        --ranks 3 --brief --only all_reduce
    DIST_DEBUG=info DIST_BACKEND=relay job shell 3 "$job_folder/hello_all_reduce"
    job_check "backend relay uses the plug-in" says "rank 0 is reached via minimal"
    DIST_DEBUG=info DIST_TRANSPORT=minimal job shell 3 "$job_folder/hello_all_reduce"
    job_check "three ranks sum" says "rank 2 of 3: sum 3"
    job_check "through the plug-in" says "rank 0 is reached via minimal"
    DIST_TRANSPORT=minimal job shell 4 "$job_folder/trainer"
    job_check "four ranks compute through the plug-in the result of one" same_losses
}

if build_plugin; then
    job_pass "the plug-ins build"
    job_check "the plug-ins need no symbol of the library" wants_nothing
    DIST_PLUGIN_PATH=$plugin try_plugin
else
    job_fail "the plug-ins build" "see above"
fi

# Quotes in docs/writing-a-backend.md are in the files that it describes.
quoted()
{
    local sources line block='' inside=no blocks=0
    sources=$(cat "$examples"/plugin-minimal/*.[ch])
    while IFS= read -r line; do
        case $line in
        '```c') inside=yes block='' ;;
        '```')
            if [ $inside = yes ] && [[ $sources != *"$block"* ]]; then
                printf 'in no file:\n%s' "$block"
                return 1
            fi
            [ $inside = yes ] && blocks=$((blocks + 1))
            inside=no ;;
        *) block+=$line$'\n' ;;
        esac
    done <"$srcdir/docs/writing-a-backend.md" >"$job_output"
    [ $blocks -ge 10 ]
}
job_check "docs/writing-a-backend.md quotes its files" quoted

# Every header alone, from C++.
for header in dist backend transport; do
    job_command g++ || { job_skip "<dist/$header.h> from C++" "there is no g++"; continue; }
    echo "#include <dist/$header.h>" >"$job_folder/header.cc"
    # shellcheck disable=SC2046
    job_check "<dist/$header.h> from C++" \
        g++ -std=c++11 -Wall -Wextra -Werror $(pc --cflags) -fsyntax-only "$job_folder/header.cc"
done
