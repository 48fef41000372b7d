#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The wheel that make wheel builds: its library, programs, headers and flags in a virtual environment. The
# long form does the same with the wheel of scripts/wheel, for all distributions.
. "$srcdir/tests/support/job.sh"

job_needs_modules
if grep -q -- -fsanitize "$builddir/config.status"; then
    job_skip "the wheel" "built with sanitizers, and the interpreter is not"
    exit
fi
python=${DIST_TEST_PYTHON-python3}
# Debian's modules do not fit a python3 that is earlier in PATH.
builds() { (cd / && "$1" -c 'import setuptools, wheel, pip, venv') 2>/dev/null; }
builds "$python" || [ -n "${DIST_TEST_PYTHON-}" ] || python=/usr/bin/python3
builds "$python" || {
    job_skip "the wheel" "$python lacks pip, setuptools or wheel (DIST_TEST_PYTHON)"
    exit
}
unset LIBDIST DIST_PLUGIN_PATH PYTHONPATH
env=$job_folder/env
says() { grep -qF -- "$1" "$job_output"; }
package() { "$env/bin/python" -c 'import os, libdist; print(os.path.dirname(libdist.__file__))'; }

installs()
{
    rm -rf "$env"
    { "$python" -m venv --without-pip "$env" &&
        "$python" -m pip --python "$env/bin/python" install -q --no-index "$1"; } >"$job_output" 2>&1
}

cat >"$job_folder/two.py" <<'END'
import array, libdist
with libdist.init_process_group() as group:
    x = array.array("f", [group.rank + 1])
    group.all_reduce(x)
    assert group.size == 2 and x[0] == 3, x
END

# The flags are words for a shell.
compiles()
{
    local flags
    flags=$("$env/bin/python" -m libdist.config --cflags --libs 2>"$job_output") &&
        eval "$(sed -n 's/^CC = //p' "$builddir/Makefile") '$srcdir/examples/hello_all_reduce.c' -o '$job_folder/hello' $flags" \
            >"$job_output" 2>&1
}

# works NAME: the installed wheel.
works()
{
    local folder
    job self 1 "$env/bin/python" -m libdist.info
    job_check "$1: modules are next to the library" says "$(package)/bin/../dist"
    job self 1 "$env/bin/dist_info" --version
    job self 1 "$env/bin/distrun" -n 2 "$env/bin/python" "$job_folder/two.py"
    job self 1 "$env/bin/distrun" -n 2 "$env/bin/dist_bench" all_reduce -m 4:4 -i 1
    job_check "$1: a C program is built with the flags of libdist.config" compiles
    job self 1 "$env/bin/distrun" -n 2 "$job_folder/hello"
    job_check "$1: the program's ranks sum" says "sum 1"
    job_fails "choose --cflags, --libs or --preload" self 1 "$env/bin/python" -m libdist.config
    for folder in "$(package)"/dist/*/; do
        [ -d "$folder" ] || continue
        folder=${folder%/}
        job self 1 "$env/bin/python" -m libdist.config --preload "${folder##*/}"
        job_check "$1: --preload prints a file of the wheel" test -f "$(tail -n 1 "$job_output")"
    done
}

# A package without the library: pip install ./python.
PYTHONPATH=$srcdir/python LIBDIST=$builddir/.libs/libdist.so PYTHONDONTWRITEBYTECODE=1 \
    job_fails "pkg-config --cflags --libs libdist" self 1 "$python" -m libdist.config --cflags

if command -v patchelf >/dev/null; then
    makes() { rm -f "$builddir"/libdist-*.whl && make -C "$builddir" wheel PYTHON3="$python" >"$job_output" 2>&1; }
    job_check "make wheel" makes
    job_check "it is installed without network" installs "$(echo "$builddir"/libdist-*.whl)"
    works "make wheel"
else
    job_check "make wheel names the missing patchelf" eval \
        "! make -C '$builddir' wheel >'$job_output' 2>&1 && says 'apt-get install patchelf'"
    job_skip "make wheel" "patchelf not found"
fi

[ -n "${CHECK_LONG-}" ] || { job_skip "scripts/wheel" "make check-long runs it"; exit; }
"$BASH" "$srcdir/scripts/wheel" --no-install >"$job_output" 2>&1 || {
    if says "check that"; then job_skip "scripts/wheel" "$(tail -n 1 "$job_output")"; else job_fail "scripts/wheel" "see above"; fi
    exit
}
job_pass "scripts/wheel"
job_check "it is installed without network" installs "$(tail -n 1 "$job_output")"
works "scripts/wheel"
