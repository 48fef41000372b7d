# SPDX-License-Identifier: BSD-3-Clause
# PMIx: loaded at run time, so the library builds without it. A test compares our declarations with pmix.h.
AC_DEFUN([DISTI_CHECK_PMIX],
[DISTI_PKG([PMIX], [pmix >= 3], [#include <pmix.h>], [return PMIx_Initialized()], [pmix_found=yes], [pmix_found=no])
AM_CONDITIONAL([HAVE_PMIX_HEADER], [test "$pmix_found" = yes])])
