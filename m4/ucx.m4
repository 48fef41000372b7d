# SPDX-License-Identifier: BSD-3-Clause
# UCX: its ucp layer, from the compiler's default directories, /usr/local or a prefix.

# DISTI_TRY_UCX(DIR): checks for UCX 1.11 or newer in DIR, or in the compiler's default directories if
# DIR is empty. Older versions lack active messages with headers, or do not report the exit of a peer.
AC_DEFUN([DISTI_TRY_UCX],
[disti_ucx_dir=$1
for disti_lib in lib lib64; do
    AS_IF([test "$ucx_found" = no],
        [UCX_CFLAGS= UCX_LIBS="-lucp -lucs"
        AS_IF([test -n "$disti_ucx_dir"],
            [UCX_CFLAGS=-I$disti_ucx_dir/include
            UCX_LIBS="-L$disti_ucx_dir/$disti_lib -Wl,-rpath,$disti_ucx_dir/$disti_lib $UCX_LIBS"])
        DISTI_TRY([$UCX_CFLAGS], [$UCX_LIBS], [#include <ucp/api/ucp.h>
#if UCP_API_VERSION < UCP_VERSION(1, 11)
#error too old
#endif], [return ucp_get_version_string() == 0],
            [disti_version=$(PKG_CONFIG_PATH=${disti_ucx_dir:+$disti_ucx_dir/$disti_lib/pkgconfig:}$PKG_CONFIG_PATH \
                $PKG_CONFIG --modversion ucx 2>/dev/null)
            DISTI_FOUND([ucx], [yes${disti_version:+ ($disti_version)}])])])
done])

AC_DEFUN([DISTI_CHECK_UCX],
[DISTI_WITH_MODULE([ucx], [build the ucx module])
AS_IF([test "$with_ucx" != no],
    [AC_MSG_CHECKING([for UCX])
    AS_IF([test -n "$ucx_prefix"], [DISTI_TRY_UCX([$ucx_prefix])],
        [DISTI_TRY_UCX([])
        AS_IF([test "$ucx_found$disti_cross" = nono && test -f /usr/local/include/ucp/api/ucp.h],
            [DISTI_TRY_UCX([/usr/local])])])
    AC_MSG_RESULT([$ucx_found])
    AS_IF([test "$ucx_found" = no],
        [UCX_CFLAGS= UCX_LIBS=
        DISTI_MISSING([ucx], [no <ucp/api/ucp.h> of 1.11 or later with -lucp -lucs], [libucx-dev])])])
AC_SUBST([UCX_CFLAGS])
AC_SUBST([UCX_LIBS])
AM_CONDITIONAL([HAVE_UCX], [test "$ucx_found" = yes])])
