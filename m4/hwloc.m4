# SPDX-License-Identifier: BSD-3-Clause
# hwloc: the topology of the machine. The core wants it; --with-hwloc=no does with CPU
# affinity alone.
AC_DEFUN([DISTI_CHECK_HWLOC],
[DISTI_WITH([hwloc], [find packages, NUMA nodes and cores with hwloc 2])
AS_IF([test "$with_hwloc" != no],
    [AS_IF([test -n "$hwloc_prefix"],
        [PKG_CONFIG_PATH="$hwloc_prefix/lib/pkgconfig:$PKG_CONFIG_PATH"; export PKG_CONFIG_PATH])
    DISTI_PKG([HWLOC], [hwloc >= 2.0], [#include <hwloc.h>],
        [hwloc_topology_t topology; return hwloc_topology_init(&topology)],
        [DISTI_FOUND([hwloc], [yes ($($PKG_CONFIG --modversion hwloc))])
        AC_DEFINE([HAVE_HWLOC], [1], [Define if hwloc 2 is there.])],
        [AC_MSG_ERROR(m4_normalize([hwloc 2 is missing. On Debian: apt-get install libhwloc-dev$disti_for.
            Or --with-hwloc=no, which sees no packages and no NUMA nodes.]))])])])
