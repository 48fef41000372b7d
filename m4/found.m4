# SPDX-License-Identifier: BSD-3-Clause
# Dependencies that are looked for and have no module yet.

# DISTI_FIND(NAME, WHAT, DIRS, HEADER, LIB, PACKAGE): is HEADER there, and LIB, with a program
# that includes and links them? Searches the compiler's own directories, then DIRS.
AC_DEFUN([DISTI_FIND],
[DISTI_WITH([$1], [look for $2 (there is no module yet)])
AS_IF([test "$with_$1" != no],
    [AC_MSG_CHECKING([for $2])
    AS_IF([test -n "$$1_prefix"], [disti_dirs=$$1_prefix], [disti_dirs="/usr $3"])
    for disti_dir in $disti_dirs; do
        for disti_lib in lib lib64; do
            AS_IF([test "$$1_found" = no && { test $disti_dir = /usr || test -f $disti_dir/include/$4; }],
                [disti_l=; AS_IF([test $disti_dir != /usr], [disti_l=-L$disti_dir/$disti_lib])
                disti_i=; AS_IF([test $disti_dir != /usr], [disti_i=-I$disti_dir/include])
                DISTI_TRY([$disti_i], [$disti_l $5], [#include <$4>], [],
                    [DISTI_FOUND([$1], [found${disti_i:+ in $disti_dir}, no module yet])])])
        done
    done
    AC_MSG_RESULT([$$1_found])
    AS_IF([test "$$1_found" = no], [DISTI_MISSING([$1], [no <$4> with $5], [$6])])])])
