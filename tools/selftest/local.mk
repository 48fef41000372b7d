# SPDX-License-Identifier: BSD-3-Clause
# The battery that runs against every backend and transport: dist_info selftest, and the tests'.
noinst_LTLIBRARIES += libselftest.la
libselftest_la_LIBTOOLFLAGS = $(static_only)
libselftest_la_SOURCES = \
	tools/selftest/battery.h \
	tools/selftest/case.c \
	tools/selftest/cases_barrier.c \
	tools/selftest/cases_gather.c \
	tools/selftest/cases_p2p.c \
	tools/selftest/cases_reduce.c \
	tools/selftest/cases_scatter.c \
	tools/selftest/cases_special.c \
	tools/selftest/cases_works.c \
	tools/selftest/command.c \
	tools/selftest/data.c tools/selftest/data.h \
	tools/selftest/expect.c \
	tools/selftest/rank.c \
	tools/selftest/run.c \
	tools/selftest/selftest.h \
	tools/selftest/sweep.c
libselftest_la_LIBADD = libcommon.la
