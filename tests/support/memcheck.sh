#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# memcheck.sh COMMAND...: runs COMMAND under valgrind. Exits with 99 if valgrind finds an invalid read or
# write, use of uninitialized memory, or a leak. Child processes that run other programs are not
# checked.
set -u
: "${builddir:?run it by make check-valgrind}"
exec valgrind -q --log-file="$builddir/tests/reports/valgrind.%p" --error-exitcode=99 \
    --leak-check=full --errors-for-leak-kinds=definite --show-leak-kinds=definite \
    --suppressions="$srcdir/tests/support/memcheck.supp" --num-callers=20 "$@"
