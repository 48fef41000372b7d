# SPDX-License-Identifier: BSD-3-Clause
# OpenSSL's libcrypto: the processes of a job authenticate each other with it.
AC_DEFUN([DISTI_CHECK_OPENSSL],
[DISTI_WITH([openssl], [authenticate the ranks of a job with OpenSSL 3])
AS_IF([test "$with_openssl" != no],
    [AS_IF([test -n "$openssl_prefix"],
        [PKG_CONFIG_PATH="$openssl_prefix/lib/pkgconfig:$PKG_CONFIG_PATH"; export PKG_CONFIG_PATH])
    DISTI_PKG([OPENSSL], [libcrypto >= 3.0], [#include <openssl/evp.h>], [return EVP_MD_CTX_new() == 0],
        [DISTI_FOUND([openssl], [yes ($($PKG_CONFIG --modversion libcrypto))])
        AC_DEFINE([HAVE_OPENSSL], [1], [Define if OpenSSL 3 is available.])],
        [DISTI_MISSING([openssl], [no libcrypto >= 3.0 in pkg-config], [libssl-dev])])])])
