# SPDX-License-Identifier: BSD-3-Clause
# DISTI_RELATIVE_PATHS: the headers' directory relative to the pkg-config file and the CMake package, so
# that an installation can be moved; and the libraries that a program must link.
AC_DEFUN([DISTI_RELATIVE_PATHS], [
    # List libraries instead of pkg-config packages: the packages also require the dependencies of a static
    # libhwloc, such as libudev.
    libdist_needs="$HWLOC_LIBS $OPENSSL_LIBS -ldl -lpthread -lm"
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
    # Without libdist.so every program must link the dependencies of libdist.a.
    AS_IF([test "$enable_shared" = no],
        [libdist_file=libdist.a libdist_type=STATIC pc_libs=" $libdist_needs" pc_libs_private=
        cmake_libs=$libdist_needs],
        [libdist_file=libdist.so libdist_type=SHARED pc_libs= pc_libs_private=$libdist_needs cmake_libs=])
    AC_SUBST([cmake_libs])
    AC_SUBST([libdist_file])
    AC_SUBST([libdist_type])
    AC_SUBST([pc_libs_private])
    AC_SUBST([pc_libs])
    AC_SUBST([includedir_from_pc])
    AC_SUBST([includedir_from_cmake])
    AC_SUBST([PACKAGE_VERSION_MAJOR])
])
