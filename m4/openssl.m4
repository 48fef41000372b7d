# SPDX-License-Identifier: BSD-3-Clause
# OpenSSL: libcrypto and libssl. Only found here; nothing is linked with it until code uses it.
AC_DEFUN([DISTI_CHECK_OPENSSL],
[DISTI_WITH([openssl], [look for OpenSSL 3 (no code uses it yet)])
AS_IF([test "$with_openssl" != no],
    [AS_IF([test -n "$openssl_prefix"],
        [PKG_CONFIG_PATH="$openssl_prefix/lib/pkgconfig:$PKG_CONFIG_PATH"; export PKG_CONFIG_PATH])
    PKG_CHECK_MODULES([OPENSSL], [libssl >= 3.0 libcrypto >= 3.0],
        [DISTI_FOUND([openssl], [found ($($PKG_CONFIG --modversion libssl)), no code uses it yet])
        AC_DEFINE([HAVE_OPENSSL], [1], [Define if OpenSSL 3 is there.])],
        [DISTI_MISSING([openssl], [no libssl >= 3.0 in pkg-config], [libssl-dev])])])])
