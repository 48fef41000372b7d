# SPDX-License-Identifier: BSD-3-Clause
# Gloo: dist_bench measures it for comparison. The library does not use it.
AC_DEFUN([DISTI_CHECK_GLOO],
[DISTI_WITH([gloo], [compare with Gloo in dist_bench])
GLOO_CFLAGS= GLOO_LIBS=
AS_IF([test "$with_gloo" != no],
    [AC_MSG_CHECKING([for Gloo])
    disti_i=; AS_IF([test -n "$gloo_prefix"], [disti_i="-I$gloo_prefix/include"])
    disti_l=; AS_IF([test -n "$gloo_prefix"],
        [disti_l="-L$gloo_prefix/lib -Wl,-rpath,$gloo_prefix/lib"])
    AC_LANG_PUSH([C++])
    DISTI_TRY([$disti_i], [$disti_l -lgloo -pthread], [#include <gloo/allreduce.h>
#include <gloo/transport/tcp/device.h>],
        [gloo::transport::tcp::CreateDevice("localhost")],
        [DISTI_FOUND([gloo], [yes (measured by dist_bench)])
        GLOO_CFLAGS=$disti_i GLOO_LIBS="$disti_l -lgloo -pthread"])
    AC_LANG_POP([C++])
    AC_MSG_RESULT([$gloo_found])
    AS_IF([test "$gloo_found" = no],
        [DISTI_MISSING([gloo], [no Gloo, or no C++ compiler], [libgloo-dev g++])])])
AC_SUBST([GLOO_CFLAGS])
AC_SUBST([GLOO_LIBS])
AM_CONDITIONAL([HAVE_GLOO], [test "$gloo_found" = yes])])
