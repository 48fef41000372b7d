# SPDX-License-Identifier: BSD-3-Clause
# The battery that runs against every backend and transport, and a backend that must fail it.
check_PROGRAMS += tests/conformance/conformance
tests_conformance_conformance_SOURCES = \
	tests/conformance/battery.h \
	tests/conformance/cases.c \
	tests/conformance/data.c \
	tests/conformance/main.c
tests_conformance_conformance_LDADD = libdist.la -lm
tests_conformance_conformance_LDFLAGS = $(job_ldflags)

# -rpath makes libtool build a shared object although it is not installed.
check_LTLIBRARIES += dist_faulty.la
dist_faulty_la_SOURCES = tests/conformance/faulty.c
dist_faulty_la_LDFLAGS = $(module_ldflags) -rpath $(abs_builddir)
