# SPDX-License-Identifier: BSD-3-Clause
# OpenSSL's libcrypto: the processes of a job authenticate each other with it. TLS loads libssl at run time. If
# libcrypto is only available as a static library, libssl is linked too: the system's libssl.so would use
# another libcrypto.
AC_DEFUN([DISTI_CHECK_OPENSSL],
[DISTI_WITH([openssl], [authenticate the ranks of a job with OpenSSL 3])
AS_IF([test "$with_openssl" != no],
    [AS_IF([test -n "$openssl_prefix"],
        [PKG_CONFIG_PATH="$openssl_prefix/lib/pkgconfig:$PKG_CONFIG_PATH"; export PKG_CONFIG_PATH])
    DISTI_PKG([OPENSSL], [libcrypto >= 3.0], [#include <openssl/evp.h>], [return EVP_MD_CTX_new() == 0],
        [DISTI_FOUND([openssl], [yes ($($PKG_CONFIG --modversion libcrypto))])
        AC_DEFINE([HAVE_OPENSSL], [1], [Define if OpenSSL 3 is available.])
        disti_libdir=$($PKG_CONFIG --variable=libdir libcrypto)
        AS_IF([test -e "$disti_libdir/libcrypto.a" && test ! -e "$disti_libdir/libcrypto.so"],
            [DISTI_PKG([LIBSSL], [libssl >= 3.0], [#include <openssl/ssl.h>],
                [return SSL_CTX_new(TLS_method()) == 0],
                [OPENSSL_CFLAGS=$LIBSSL_CFLAGS OPENSSL_LIBS=$LIBSSL_LIBS
                openssl_status="$openssl_status, linked statically"
                AC_DEFINE([HAVE_STATIC_LIBSSL], [1], [Define if libssl is linked statically.])],
                [AC_MSG_ERROR([$disti_libdir has a static libcrypto, but no libssl >= 3.0 that links])])])],
        [DISTI_MISSING([openssl], [no libcrypto >= 3.0 in pkg-config], [libssl-dev])])])])
