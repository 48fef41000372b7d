# SPDX-License-Identifier: BSD-3-Clause
# CBLAS, preferably OpenBLAS: matrix products of the training programs. The library does not use it.
AC_DEFUN([DISTI_CHECK_CBLAS],
[DISTI_WITH([cblas], [multiply matrices with CBLAS in train_mnist])
AS_IF([test "$with_cblas" != no],
    [AS_IF([test -n "$cblas_prefix"],
        [PKG_CONFIG_PATH="$cblas_prefix/lib/pkgconfig:$PKG_CONFIG_PATH"; export PKG_CONFIG_PATH])
    AC_MSG_CHECKING([for CBLAS])
    for disti_pc in openblas blas; do
        AS_IF([test "$cblas_found" = no && $PKG_CONFIG --exists $disti_pc],
            [CBLAS_CFLAGS=$($PKG_CONFIG --cflags $disti_pc)
            CBLAS_LIBS=$($PKG_CONFIG --libs $disti_pc)
            DISTI_TRY([$CBLAS_CFLAGS], [$CBLAS_LIBS], [#include <cblas.h>],
                [float x = 1; cblas_saxpy(1, 1, &x, 1, &x, 1)],
                [DISTI_FOUND([cblas], [yes ($disti_pc $($PKG_CONFIG --modversion $disti_pc))])])])
    done
    AC_MSG_RESULT([$cblas_found])
    AS_IF([test "$cblas_found" = yes],
        [AC_DEFINE([HAVE_CBLAS], [1], [Define if <cblas.h> and its library are available.])
        DISTI_TRY([$CBLAS_CFLAGS], [$CBLAS_LIBS], [#include <cblas.h>],
            [openblas_set_num_threads(1)],
            [AC_DEFINE([HAVE_OPENBLAS_SET_NUM_THREADS], [1],
                [Define if the CBLAS is OpenBLAS, with openblas_set_num_threads.])])],
        [CBLAS_CFLAGS= CBLAS_LIBS=
        DISTI_MISSING([cblas], [no cblas_saxpy in openblas or blas],
            [libopenblas-serial-dev])])])
AC_SUBST([CBLAS_CFLAGS])
AC_SUBST([CBLAS_LIBS])])
