# SPDX-License-Identifier: BSD-3-Clause
# The battery (tools/selftest) as the tests call it, and a backend that must fail it.
check_PROGRAMS += tests/conformance/conformance
tests_conformance_conformance_SOURCES = tests/conformance/main.c
tests_conformance_conformance_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/tools
tests_conformance_conformance_LDADD = libselftest.la libdist.la -lm
tests_conformance_conformance_LDFLAGS = $(job_ldflags)

# -rpath makes libtool build a shared object although it is not installed. They are apart from the
# modules that are for users, which dist_info lists.
if HAVE_SHARED
check_LTLIBRARIES += tests/conformance/dist_faulty.la tests/conformance/dist_plain.la
endif
tests_conformance_dist_faulty_la_LIBTOOLFLAGS = $(shared_only)
tests_conformance_dist_faulty_la_SOURCES = tests/conformance/faulty.c
tests_conformance_dist_faulty_la_LDFLAGS = $(module_ldflags) -rpath $(abs_builddir)

# The same without tags and receives from any source; its MIN and MAX may lose a NaN.
tests_conformance_dist_plain_la_LIBTOOLFLAGS = $(shared_only)
tests_conformance_dist_plain_la_SOURCES = tests/conformance/faulty.c
tests_conformance_dist_plain_la_CPPFLAGS = $(AM_CPPFLAGS) -DFAULTY_NAME='"plain"' -DFAULTY_LACKS=7u
tests_conformance_dist_plain_la_LDFLAGS = $(module_ldflags) -rpath $(abs_builddir)
