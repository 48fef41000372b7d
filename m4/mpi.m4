# SPDX-License-Identifier: BSD-3-Clause
# MPI: Open MPI and MPICH, each through its compiler wrapper, identified by macros of <mpi.h>. If both are
# available, the mpi module is built for each.

# DISTI_MPI_FLAGS(WRAPPER): reads the wrapper's flags. Sets disti_mpi_cflags and disti_mpi_libs.
AC_DEFUN([DISTI_MPI_FLAGS],
[disti_mpi_cflags= disti_mpi_libs=
disti_words=$($1 -show 2>/dev/null || $1 --showme 2>/dev/null)
for disti_word in $disti_words; do
    AS_CASE([$disti_word],
        [-I*|-D*|-isystem*], [disti_mpi_cflags="$disti_mpi_cflags $disti_word"],
        [-L*|-l*|-Wl,*|-pthread], [disti_mpi_libs="$disti_mpi_libs $disti_word"])
done])

# DISTI_MPI_FLAVOUR(FLAVOUR, VARIABLE, MACRO, WRAPPERS, LAUNCHERS): finds the first wrapper whose <mpi.h>
# defines MACRO. Sets VARIABLE_CFLAGS, VARIABLE_LIBS, VARIABLE_RUN and mpi_FLAVOUR. Without that MPI
# VARIABLE_RUN is empty, even if it is set in the environment, so that tests skip it.
AC_DEFUN([DISTI_MPI_FLAVOUR],
[AC_MSG_CHECKING([for $1])
mpi_$1=no
for disti_mpicc in $4; do
    AS_IF([test "$mpi_$1" = no && command -v "$disti_mpicc" >/dev/null],
        [DISTI_MPI_FLAGS([$disti_mpicc])
        DISTI_TRY([$disti_mpi_cflags], [$disti_mpi_libs],
            [#include <mpi.h>
#ifndef $3
#error another MPI
#endif], [MPI_Init(0, 0)],
            [mpi_$1=$disti_mpicc
            $2_CFLAGS=$disti_mpi_cflags
            $2_LIBS=$disti_mpi_libs])])
done
AC_MSG_RESULT([$mpi_$1])
AS_IF([test "$mpi_$1" != no],
    [disti_mpi_bin=$(dirname "$(command -v "$mpi_$1")")
    AC_PATH_PROGS([$2_RUN], [$5], [], [$disti_mpi_bin$PATH_SEPARATOR$PATH])],
    [$2_RUN=])
AC_SUBST([$2_CFLAGS])
AC_SUBST([$2_LIBS])
AC_SUBST([$2_RUN])
AM_CONDITIONAL([HAVE_$2], [test "$mpi_$1" != no])])

AC_DEFUN([DISTI_CHECK_MPI],
[DISTI_WITH_MODULE([mpi], [build the mpi module, for Open MPI and for MPICH])
disti_mpiccs= disti_mpirun=mpirun
AS_IF([test "$with_mpi" = no], [],
    [test -n "$mpi_prefix"], [disti_mpiccs=$mpi_prefix/bin/mpicc],
    [disti_mpiccs=${disti_tool}mpicc])
disti_named=; AS_IF([test "$with_mpi" != no && test -z "$mpi_prefix"], [disti_named=$disti_mpiccs])
DISTI_MPI_FLAVOUR([openmpi], [OPENMPI], [OPEN_MPI], [${disti_named:+$disti_named.openmpi} $disti_mpiccs],
    [mpirun.openmpi mpirun])
DISTI_MPI_FLAVOUR([mpich], [MPICH], [MPICH_VERSION], [${disti_named:+$disti_named.mpich} $disti_mpiccs],
    [mpirun.mpich mpiexec.hydra mpirun])
AS_IF([test "$with_mpi" = no], [],
    [test "$mpi_openmpi$mpi_mpich" = nono],
        [DISTI_MISSING([mpi], [no mpicc of Open MPI or MPICH], [libopenmpi-dev openmpi-bin])],
    [mpi_found=yes
    mpi_status="Open MPI: $mpi_openmpi, MPICH: $mpi_mpich"
    AS_IF([test "$mpi_openmpi" = no],
        [mpi_status="$mpi_status (Debian: apt-get install libopenmpi-dev openmpi-bin$disti_for)"])
    AS_IF([test "$mpi_mpich" = no],
        [mpi_status="$mpi_status (Debian: apt-get install libmpich-dev mpich$disti_for)"])])])
