# SPDX-License-Identifier: BSD-3-Clause
# NCCL: loaded at run time, so the module builds without it. A test compares our declarations with nccl.h.

# DISTI_NCCL_HEADER(DIR): checks for nccl.h of 2.14 or newer in DIR/include.
AC_DEFUN([DISTI_NCCL_HEADER],
[AS_IF([test "$nccl_found" = no && { test "$1" = /usr || test -f "$1/include/nccl.h"; }],
    [disti_cppflags=$CPPFLAGS
    AS_IF([test "$1" = /usr], [NCCL_CFLAGS=], [NCCL_CFLAGS="-I$1/include"])
    CPPFLAGS="$NCCL_CFLAGS $CPPFLAGS"
    AC_COMPUTE_INT([disti_nccl_version], [NCCL_VERSION_CODE], [#include <nccl.h>],
        [disti_nccl_version=0])
    CPPFLAGS=$disti_cppflags
    AS_IF([test "$disti_nccl_version" -ge 21400],
        [disti_nccl_version=$((disti_nccl_version / 10000)).$((disti_nccl_version % 10000 / 100)).$((disti_nccl_version % 100))
        nccl_prefix=$1
        DISTI_FOUND([nccl], [yes, loaded at run time (checked against nccl.h $disti_nccl_version)])],
        [NCCL_CFLAGS=])])])

AC_DEFUN([DISTI_CHECK_NCCL],
[DISTI_WITH_MODULE([nccl], [build the nccl module; a test compares it with PREFIX/include/nccl.h])
NCCL_CFLAGS=
AS_IF([test "$with_nccl" != no],
    [AC_MSG_CHECKING([for nccl.h])
    AS_IF([test -n "$nccl_prefix"], [disti_dirs=$nccl_prefix],
        [test "$disti_cross" = yes], [disti_dirs=/usr],
        [disti_dirs="/usr /usr/local/cuda /usr/local"])
    for disti_dir in $disti_dirs; do
        DISTI_NCCL_HEADER([$disti_dir])
    done
    AC_MSG_RESULT([$nccl_found])
    AS_IF([test "$nccl_found" = no],
        [AS_IF([test -n "$nccl_prefix"],
            [AC_MSG_ERROR([--with-nccl: no nccl.h of 2.14 or newer in $nccl_prefix/include])])
        nccl_status="yes, loaded at run time (not checked: no nccl.h)"])])
AC_SUBST([NCCL_CFLAGS])
AC_SUBST([nccl_prefix])
AM_CONDITIONAL([HAVE_NCCL], [test "$with_nccl" != no])
AM_CONDITIONAL([HAVE_NCCL_HEADER], [test "$nccl_found" = yes])])
