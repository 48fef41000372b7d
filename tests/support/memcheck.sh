#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# memcheck.sh COMMAND...: runs it under valgrind. It fails with 99 if valgrind finds anything: reads
# or writes beyond memory, bytes that were never set, or memory that nothing points to at the end.
# Programs that it starts are not looked at.
set -u
: "${builddir:?run it by make check-valgrind}"
exec valgrind -q --log-file="$builddir/tests/reports/valgrind.%p" --error-exitcode=99 \
    --leak-check=full --errors-for-leak-kinds=definite --show-leak-kinds=definite \
    --suppressions="$srcdir/tests/support/memcheck.supp" --num-callers=20 "$@"
