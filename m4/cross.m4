# SPDX-License-Identifier: BSD-3-Clause
# Cross compilation. Libraries of the build machine must not be used for the host. Libraries come only
# from $host_alias-pkg-config, the cross compiler, and the prefixes and variables that the user sets.

# DISTI_CROSS: sets disti_cross to yes or no, disti_tool to the prefix of the host's tools, and disti_for
# to the suffix of messages about a missing package. A build for a different host counts as cross
# compilation even if its programs run on the build machine.
AC_DEFUN([DISTI_CROSS],
[AC_REQUIRE([AC_CANONICAL_HOST])
AS_IF([test "$cross_compiling" = yes || test "$host" != "$build"],
    [disti_cross=yes disti_tool=$host_alias- disti_for=" for $host_alias"],
    [disti_cross=no disti_tool= disti_for=])])

# DISTI_PROG_PKG_CONFIG: finds pkg-config. Without one for the host, uses the build machine's, but only
# with the directories that the user sets: --with-NAME=PREFIX and PKG_CONFIG_PATH.
AC_DEFUN([DISTI_PROG_PKG_CONFIG],
[AC_REQUIRE([DISTI_CROSS])
PKG_PROG_PKG_CONFIG
AS_IF([test -z "$PKG_CONFIG"],
    [AC_MSG_ERROR([pkg-config is missing. On Debian: apt-get install pkg-config])])
AS_IF([test "$disti_cross" = yes && test -z "${ac_cv_env_PKG_CONFIG_value}${PKG_CONFIG_LIBDIR}${PKG_CONFIG_SYSROOT_DIR}"],
    [AS_CASE([$PKG_CONFIG], [*/"${disti_tool}pkg-config"], [],
        [AC_MSG_NOTICE(m4_normalize([there is no ${disti_tool}pkg-config: only libraries below given
            prefixes and in PKG_CONFIG_PATH are used]))
        PKG_CONFIG_LIBDIR=/nonexistent; export PKG_CONFIG_LIBDIR])])])

# DISTI_PKG(VARIABLE, MODULE, HEADER, BODY, IF-YES, IF-NO): checks whether pkg-config has MODULE and a
# program links with it. If not, VARIABLE_CFLAGS and VARIABLE_LIBS are empty.
AC_DEFUN([DISTI_PKG],
[PKG_CHECK_MODULES([$1], [$2], [disti_pkg=yes], [disti_pkg=no])
AS_IF([test "$disti_pkg" = yes],
    [AC_MSG_CHECKING([whether $CC links with $2])
    DISTI_TRY([$$1_CFLAGS], [$$1_LIBS], [$3], [$4], [], [disti_pkg=no])
    AC_MSG_RESULT([$disti_pkg])])
AS_IF([test "$disti_pkg" = yes], [$5], [$1_CFLAGS= $1_LIBS=
    $6])])

# DISTI_CXX17: sets disti_cxx17 to yes if $CXX compiles C++17 that links with objects of $CC. It does not
# if there is no C++ cross compiler, since configure then selects the build machine's.
AC_DEFUN([DISTI_CXX17],
[AC_MSG_CHECKING([whether $CXX compiles C++17 for the programs of $CC])
disti_cxx17=no disti_libs=$LIBS
AC_LANG_PUSH([C++])
disti_cxxflags=$CXXFLAGS CXXFLAGS="$CXXFLAGS -std=c++17"
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <functional>]], [[std::function<int()> f = []() { return 0; };
    return f();]])], [disti_cxx17=yes])
AS_IF([test "$disti_cxx17" = yes],
    [AC_COMPILE_IFELSE([AC_LANG_SOURCE([[extern "C" int disti_one(void) { return 1; }]])],
        [mv conftest.$ac_objext disti-cxx.$ac_objext], [disti_cxx17=no])])
CXXFLAGS=$disti_cxxflags
AC_LANG_POP([C++])
LIBS="disti-cxx.$ac_objext $LIBS"
AS_IF([test "$disti_cxx17" = yes],
    [AC_LINK_IFELSE([AC_LANG_PROGRAM([int disti_one(void);], [return disti_one()])],
        [], [disti_cxx17=no])])
LIBS=$disti_libs
rm -f disti-cxx.$ac_objext
AC_MSG_RESULT([$disti_cxx17])])
