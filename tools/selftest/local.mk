# SPDX-License-Identifier: BSD-3-Clause
# The battery that runs against every backend and transport: dist_info selftest, and the tests'.
noinst_LTLIBRARIES += libselftest.la
libselftest_la_LIBTOOLFLAGS = $(static_only)
libselftest_la_SOURCES = \
	tools/selftest/battery.h \
	tools/selftest/case.c \
	tools/selftest/cases_collectives.c \
	tools/selftest/cases_other.c \
	tools/selftest/command.c \
	tools/selftest/data.c \
	tools/selftest/run.c \
	tools/selftest/selftest.h
libselftest_la_LIBADD = libcommon.la
