# SPDX-License-Identifier: BSD-3-Clause
# DISTI_RELATIVE_PATHS: where the headers are, seen from the pkg-config file and from the CMake
# package, so that a moved installation still finds them.
AC_DEFUN([DISTI_RELATIVE_PATHS], [
    disti_prefix=$prefix disti_exec_prefix=$exec_prefix
    AS_IF([test "$prefix" = NONE], [prefix=$ac_default_prefix])
    AS_IF([test "$exec_prefix" = NONE], [exec_prefix=$prefix])
    eval disti_libdir=$libdir
    eval disti_libdir=$disti_libdir
    eval disti_includedir=$includedir
    eval disti_includedir=$disti_includedir
    prefix=$disti_prefix exec_prefix=$disti_exec_prefix
    includedir_from_pc=$(realpath -m --relative-to="$disti_libdir/pkgconfig" "$disti_includedir")
    includedir_from_cmake=$(realpath -m --relative-to="$disti_libdir/cmake/libdist" \
        "$disti_includedir")
    PACKAGE_VERSION_MAJOR=${PACKAGE_VERSION%%.*}
    AC_SUBST([includedir_from_pc])
    AC_SUBST([includedir_from_cmake])
    AC_SUBST([PACKAGE_VERSION_MAJOR])
])
