# SPDX-License-Identifier: BSD-3-Clause
# The verifier of plans: used by dist_sim and the tests, not by the library.
noinst_LTLIBRARIES += libverify.la
libverify_la_LIBTOOLFLAGS = $(static_only)
libverify_la_SOURCES = \
	src/verify/verify.c \
	src/verify/verify.h
libverify_la_LIBADD = libdist_core.la
