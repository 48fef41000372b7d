# SPDX-License-Identifier: BSD-3-Clause
# Common code of all --with-X options: auto, yes, no or a prefix, and one line in the summary.

# DISTI_WITH(NAME, WHAT): adds --with-NAME. Sets with_NAME to auto, yes or no, and NAME_prefix to the
# directory if one was given (which means yes).
AC_DEFUN([DISTI_WITH],
[AC_ARG_WITH([$1],
    [AS_HELP_STRING([--with-$1=auto|yes|no|PREFIX], [$2 @<:@auto@:>@])],
    [], [with_$1=auto])
$1_prefix=
AS_CASE([$with_$1],
    [auto|yes|no], [],
    [/*], [$1_prefix=$with_$1; with_$1=yes],
    [AC_MSG_ERROR([--with-$1=$with_$1: valid values are auto, yes, no and an absolute directory])])
$1_found=no
$1_status=
AS_IF([test "$with_$1" = no], [$1_status="no (--with-$1=no)"])])

# DISTI_WITH_MODULE(NAME, WHAT): DISTI_WITH for a module, which requires shared objects.
AC_DEFUN([DISTI_WITH_MODULE],
[DISTI_WITH([$1], [$2])
AS_IF([test "$enable_shared" = no],
    [AS_IF([test "$with_$1" = yes],
        [AC_MSG_ERROR([--with-$1 needs modules, which are shared objects: omit --disable-shared])])
    AS_IF([test "$with_$1" = auto],
        [with_$1=no
        $1_status="no (--disable-shared: modules are shared objects)"])])])

# DISTI_FOUND(NAME, TEXT): marks the dependency as found. TEXT is its status in the summary.
AC_DEFUN([DISTI_FOUND], [$1_found=yes; $1_status="$2"])

# DISTI_MISSING(NAME, REASON, PACKAGE): marks the dependency as missing and suggests a Debian package. An
# error if --with-NAME=yes or a prefix was given.
AC_DEFUN([DISTI_MISSING],
[$1_status="no ($2; Debian: apt-get install $3$disti_for)"
AS_IF([test "$with_$1" = yes],
    [AC_MSG_ERROR([--with-$1: $2. On Debian: apt-get install $3$disti_for])])])

# DISTI_TRY(CPPFLAGS, LIBS, HEADER, BODY, IF-YES, IF-NO): checks whether a small program links.
AC_DEFUN([DISTI_TRY],
[disti_cppflags=$CPPFLAGS
disti_libs=$LIBS
CPPFLAGS="$1 $CPPFLAGS"
LIBS="$2 $LIBS"
AC_LINK_IFELSE([AC_LANG_PROGRAM([$3], [$4])], [disti_links=yes], [disti_links=no])
CPPFLAGS=$disti_cppflags
LIBS=$disti_libs
AS_IF([test "$disti_links" = yes], [$5], [$6])])
