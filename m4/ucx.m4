# SPDX-License-Identifier: BSD-3-Clause
# UCX: its ucp layer.
AC_DEFUN([DISTI_CHECK_UCX],
[DISTI_FIND([ucx], [UCX], [/usr/local], [ucp/api/ucp.h], [-lucp -lucs], [libucx-dev])])
