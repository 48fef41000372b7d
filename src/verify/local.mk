# SPDX-License-Identifier: BSD-3-Clause
# The proof of plans, and their simulation: of dist_sim and the tests, not of the library.
noinst_LTLIBRARIES += libproof.la
libproof_la_LIBTOOLFLAGS = $(static_only)
libproof_la_SOURCES = \
	src/simulate/internal.h \
	src/simulate/program.c \
	src/simulate/simulate.c \
	src/verify/internal.h \
	src/verify/race.c \
	src/verify/verify.c \
	src/verify/verify.h
libproof_la_LIBADD = libdist_core.la
