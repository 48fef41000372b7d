# SPDX-License-Identifier: BSD-3-Clause
# jansson: the programs read JSON with it. The library does not use it.
AC_DEFUN([DISTI_CHECK_JANSSON],
[DISTI_WITH([jansson], [read JSON in dist_bench, dist_info and train_mnist])
AS_IF([test "$with_jansson" != no],
    [AS_IF([test -n "$jansson_prefix"],
        [PKG_CONFIG_PATH="$jansson_prefix/lib/pkgconfig:$PKG_CONFIG_PATH"; export PKG_CONFIG_PATH])
    DISTI_PKG([JANSSON], [jansson >= 2.7], [#include <jansson.h>], [return json_object() == 0],
        [DISTI_FOUND([jansson], [yes ($($PKG_CONFIG --modversion jansson))])
        AC_DEFINE([HAVE_JANSSON], [1], [Define if jansson is available.])],
        [DISTI_MISSING([jansson], [no --baseline in dist_bench, no flight in dist_info, no --resume in train_mnist],
            [libjansson-dev])])])])
