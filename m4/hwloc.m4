# SPDX-License-Identifier: BSD-3-Clause
# hwloc: the topology of the machine. Required by default; with --with-hwloc=no the library uses only CPU
# affinity.
AC_DEFUN([DISTI_CHECK_HWLOC],
[DISTI_WITH([hwloc], [find packages, NUMA nodes and cores with hwloc 2])
AS_IF([test "$with_hwloc" != no],
    [AS_IF([test -n "$hwloc_prefix"],
        [PKG_CONFIG_PATH="$hwloc_prefix/lib/pkgconfig:$PKG_CONFIG_PATH"; export PKG_CONFIG_PATH])
    DISTI_PKG([HWLOC], [hwloc >= 2.0], [#include <hwloc.h>],
        [hwloc_topology_t topology; return hwloc_topology_init(&topology)],
        [DISTI_FOUND([hwloc], [yes ($($PKG_CONFIG --modversion hwloc))])
        AC_DEFINE([HAVE_HWLOC], [1], [Define if hwloc 2 is available.])],
        [AC_MSG_ERROR(m4_normalize([hwloc 2 is missing. On Debian: apt-get install libhwloc-dev$disti_for.
            Or --with-hwloc=no, which ignores packages and NUMA nodes.]))])])])
