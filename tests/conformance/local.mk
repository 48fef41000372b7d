# SPDX-License-Identifier: BSD-3-Clause
# The battery that runs against every backend and transport, and a backend that must fail it.
check_PROGRAMS += tests/conformance/conformance
tests_conformance_conformance_SOURCES = \
	tests/conformance/battery.h \
	tests/conformance/case.c \
	tests/conformance/cases_barrier.c \
	tests/conformance/cases_gather.c \
	tests/conformance/cases_p2p.c \
	tests/conformance/cases_reduce.c \
	tests/conformance/cases_scatter.c \
	tests/conformance/cases_works.c \
	tests/conformance/data.c tests/conformance/data.h \
	tests/conformance/expect.c \
	tests/conformance/main.c \
	tests/conformance/run.c \
	tests/conformance/sweep.c
tests_conformance_conformance_LDADD = libdist.la -lm
tests_conformance_conformance_LDFLAGS = $(job_ldflags)

# -rpath makes libtool build a shared object although it is not installed.
check_LTLIBRARIES += dist_faulty.la
dist_faulty_la_SOURCES = tests/conformance/faulty.c
dist_faulty_la_LDFLAGS = $(module_ldflags) -rpath $(abs_builddir)
