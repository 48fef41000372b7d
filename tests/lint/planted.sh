#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Plants one fault per rule in a small tree that obeys all rules; lint.sh must find it. In the long
# form no other rule may report it.
set -u
if [ -n "${CHECK_SHORT-}" ]; then
    echo "SKIP: planted faults (the other suite finds them)"
    exit 77
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tree=$(mktemp -d "${TMPDIR:-/tmp}/dist-lint.XXXXXX") || exit 99
sound=$tree.sound
trap 'rm -rf "$tree" "$sound"' EXIT
failed=0

licence='SPDX-License-Identifier: BSD-3-Clause'

# c_file PATH LINE...: writes a C file that obeys the rules, with the lines after its head.
c_file()
{
    mkdir -p "$tree/$(dirname "$1")"
    { printf '/* %s */\n/* A test. */\n' "$licence"; printf '%s\n' "${@:2}"; } >"$tree/$1"
}

# Makes the tree without faults.
plant()
{
    mkdir -p "$tree"/man "$tree"/build/.libs
    c_file include/dist/dist.h 'DIST_API int dist_one(void);' 'DIST_API const char *dist_two(int a);'
    c_file src/base/log.c '#include "base/log.h"' '/* exit() is not for us. */'
    c_file src/base/log.h '#include <dist/dist.h>'
    c_file src/plan/plan.c '#include "base/log.h"'
    c_file src/transports/tcp.c '#include "base/log.h"' 'const char *a = "DIST_PORT";'
    variables PORT
    c_file src/backends/gloo.c 'const struct dist_backend disti_backend_gloo = {' \
        '    .name = "gloo",' '};'
    c_file src/backends/registry.c 'int *a[] = {&disti_backend_gloo};'
    c_file train/main.c '#include "main.h"' '#include <dist/dist.h>'
    c_file train/main.h 'int a;'
    printf '# %s\nsources = %s\n' "$licence" "$(cd "$tree" && find src train -name '*.[ch]' | tr '\n' ' ')" \
        >"$tree/src/local.mk"
    printf '# %s\ninclude src/local.mk\nman = man/dist.7 man/dist-env.7 man/dist_one.3 man/libdist.3 man/train_mnist.1\n' "$licence" >"$tree/Makefile.am"
    man_page libdist 3 'All.'
    man_page dist 7 $'.Bl -tag -width Ds\n.It Cm gloo\nTCP.\n.El'
    man_page dist-env 7 $'.Bl -tag -width Ds\n.It Ev DIST_PORT\nA port.\n.El'
    function_page dist_one dist_two
    mkdir -p "$tree/tests/lint"
    printf 'dist_one\ndist_two\n' >"$tree/tests/lint/symbols"
    man_page train_mnist 1 $'.Bl -tag -width Ds\n.It Fl -epochs\nMany.\n.El'
    printf '#!/bin/sh\necho "  --epochs N  many"\n' >"$tree/build/train_mnist"
    chmod +x "$tree/build/train_mnist"
    cp "$here/../../.clang-format" "$tree/"
    library 'int dist_one(void) { return 1; }' 'int dist_two(void) { return 2; }'
    module 'int dist_module_entry;'
}

# Restores the tree without faults.
sow()
{
    rm -rf "${tree:?}"
    cp -a "$sound" "$tree"
}

# variables NAME...: writes the table of variables; names are without DIST_.
variables()
{
    c_file src/base/settings/variables.def "${@/#/VARIABLE(DIST_}"
    sed -i 's/^VARIABLE(.*/&, TEXT, "a thing", "")/' "$tree/src/base/settings/variables.def"
    c_file src/base/settings/variables.c 'const char *const rows[][2] = {' '    {"LAST", ""},' '};'
}

man_page()
{
    printf '.\\" %s\n.Dd January 1, 2026\n.Dt %s %s\n.Os\n.Sh NAME\n.Nm %s\n.Nd test\n.Sh DESCRIPTION\n%s\n' \
        "$licence" "${1^^}" "$2" "$1" "$3" >"$tree/man/$1.$2"
    [ "$1" != dist-env ] || mv "$tree/man/dist-env.7" "$tree/man/dist-env.7.in"
}

# function_page FUNCTION...: writes a page for all of them.
function_page()
{
    {
        printf '.\\" %s\n.Dd January 1, 2026\n.Dt DIST_ONE 3\n.Os\n.Sh NAME\n' "$licence"
        printf '.Nm %s ,\n' "${@:2}"
        printf '.Nm %s\n.Nd test\n.Sh SYNOPSIS\n.In dist/dist.h\n@synopsis@\n.Sh DESCRIPTION\nText.\n' "$1"
    } >"$tree/man/dist_one.3.in"
}

shared() { printf '%s\n' "${@:2}" | ${CC:-cc} -shared -fPIC -x c -o "$tree/build/.libs/$1" - 2>&1; }
library() { shared libdist.so "$@"; }
module() { shared dist_mpi.so "$@"; }

lint() { "$BASH" "$here/lint.sh" "$tree" "$tree/build"; }

verdict()
{
    if [ "$1" = 0 ]; then
        echo "PASS: $2"
    else
        echo "FAIL: $2"
        lint | sed 's/^/    /'
        failed=1
    fi
}

# found RULE: the planted fault violates this rule, and in the long form no other.
found()
{
    local output
    output=$([ -n "${CHECK_LONG-}" ] || export LINT_ONLY=$1; lint)
    if grep -qF "SKIP: $1" <<<"$output"; then
        echo "SKIP: planted: $1"
        return
    fi
    [ "$(grep '^FAIL: ' <<<"$output")" = "FAIL: $1" ]
    verdict $? "planted: $1"
}

plant
cp -a "$tree" "$sound"
output=$(lint)
! grep -q '^FAIL: ' <<<"$output"
verdict $? "a tree without faults obeys every rule"

c_file src/plan/plan.c '#include "transports/tcp.h"'
found "each layer includes only lower ones"

sow
c_file src/transports/tcp.c '#include "plan/plan.h"' 'const char *a = "DIST_PORT";'
found "each layer includes only lower ones"

sow
c_file train/main.c '#include "base/log.h"'
found "programs use only public headers"

# tracked FILE: makes a repository that contains only this file.
tracked() { git -C "$tree" init -q && git -C "$tree" add -f "$1" || exit 99; }
sow
echo '{}' >"$tree/dist-flight.0.json"
tracked dist-flight.0.json
found "no dumps, logs or large files"

sow
head -c 310000 /dev/zero >"$tree/man/picture"
tracked man/picture
found "no dumps, logs or large files"

sow
sed -i 1d "$tree/src/base/log.c"
found "every file begins with its licence and purpose"

sow
c_file src/base/log.c 'void f(void)' '{' '    if (x)' '        exit(1);' '}'
found "the library never exits"

sow
c_file src/base/log.c 'const char *f(void)' '{' '    return getenv("DIST_PORT");' '}'
found "the environment is read in one place"

sow
c_file src/base/log.c 'double f(const char *a)' '{' '    return strtod(a, 0);' '}'
found "parsers do not depend on the locale"

sow
c_file train/main.c '#include "main.h"' 'void f(void)' '{' '    setlocale(LC_ALL, "");' '}'
found "parsers do not depend on the locale"

sow
c_file src/base/log.h '#include <dist/dist.h>' 'const char *log_text(int level);'
found "shared names begin with disti_"

sow
printf '# A\n\n    make\n' >"$tree/README.md"
printf '# B\n\n    make all\n' >"$tree/README.zh-CN.md"
found "README says the same in every language"

sow
mkdir -p "$tree/debian"
printf ' dist_one@LIBDIST_0 0.1\n' >"$tree/debian/libdist0.symbols"
found "exported symbols are in the list of symbols"

sow
c_file src/base/log.c 'extern int message_crew_count;'
found "names use the words of docs/GLOSSARY.md"

sow
mv "$tree/src/base/log.c" "$tree/src/base/door.c"
sed -i 's|src/base/log.c|src/base/door.c|' "$tree/src/local.mk"
found "names use the words of docs/GLOSSARY.md"

sow
echo 'See `gone.c`.' >>"$tree/src/base/README.md"
found "files named in READMEs and docs exist"

sow
printf '/* TO''DO */\n' >>"$tree/src/base/log.c"
found "no open tasks in the source"

sow
c_file src/base/new.c 'int a;'
found "every source is in the build"

sow
printf '# %s\n' "$licence" >"$tree/train/local.mk"
found "every source is in the build"

sow
c_file src/backends/registry.c 'int *a[] = {0};'
found "every backend has a row and a man entry"

sow
man_page dist 7 'Text.'
found "every backend has a row and a man entry"

sow
c_file src/collectives/algorithms.def 'ALGORITHM(BARRIER, barrier, tree,' '    .summary = "few steps")'
printf '.\\" Rows: from the table.\n.\\" Rows end.\n%.0s' 1 2 >>"$tree/man/dist.7"
found "every algorithm is in dist(7)"

sow
c_file src/transports/tcp.c 'const char *a = "DIST_PORT", *b = "DIST_PORTS";'
found "source, table and dist-env(7) have the same variables"

sow
variables PORT PORTS
c_file src/transports/tcp.c 'const char *a = "DIST_PORT", *b = "DIST_PORTS";'
found "source, table and dist-env(7) have the same variables"

sow
variables
found "source, table and dist-env(7) have the same variables"

sow
variables PORT
man_page dist-env 7 $'.Bl -tag -width Ds\n.It Ev DIST_PORT\nA port.\n.El'
c_file src/transports/tcp.c 'const char *a = "DIST_PORT", *b = "SLURM_PORTS";'
found "source, table and dist-env(7) have the same variables"

sow
variables PORT PORTS
man_page dist-env 7 $'.Bl -tag -width Ds\n.It Ev DIST_PORT\nA port.\n.It Ev DIST_PORTS\nMore.\n.El'
found "source, table and dist-env(7) have the same variables"

sow
man_page dist-env 7 $'.Bl -tag -width Ds\n.It Ev DIST_PORT\nA port.\n.It Ev DIST_PORT\nAgain.\n.El'
found "source, table and dist-env(7) have the same variables"

sow
man_page libdist 3 $'.Bl -column "DIST_ONE" "number" "bytes"\n.It DIST_ONE Ta 1 Ta 4\n.El'
found "the numbers of types and operations agree with libdist(3)"

sow
echo '.Qqq' >>"$tree/man/dist.7"
found "man pages are well-formed"

sow
c_file src/base/log.c 'int  a;'
found "the layout is that of clang-format"

sow
library 'int dist_one(void) { return 1; }' 'int dist_two(void) { return 2; }' 'int disti_x;'
found "the library exports only the public functions"

sow
library 'int dist_one(void) { return 1; }'
found "the library exports only the public functions"

sow
printf 'dist_one\n' >"$tree/tests/lint/symbols"
found "exported symbols are in the list of symbols"

sow
function_page dist_one dist_two dist_three
found "every public function is in a man page"

sow
function_page dist_one
found "every public function is in a man page"

sow
module 'int disti_fail(void);' 'int dist_module_entry(void) { return disti_fail(); }'
found "modules need no symbol of the library"

sow
printf '#!/bin/sh\necho "  --epoch N  many"\n' >"$tree/build/train_mnist"
found "the programs' options are in their man pages"

exit $failed
