# SPDX-License-Identifier: BSD-3-Clause
# The battery (tools/selftest) as the tests call it, and a backend that must fail it.
check_PROGRAMS += tests/conformance/conformance
tests_conformance_conformance_SOURCES = tests/conformance/main.c
tests_conformance_conformance_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/tools
tests_conformance_conformance_LDADD = libselftest.la libdist.la -lm
tests_conformance_conformance_LDFLAGS = $(job_ldflags)

# -rpath makes libtool build a shared object although it is not installed.
check_LTLIBRARIES += dist_faulty.la
dist_faulty_la_SOURCES = tests/conformance/faulty.c
dist_faulty_la_LDFLAGS = $(module_ldflags) -rpath $(abs_builddir)
