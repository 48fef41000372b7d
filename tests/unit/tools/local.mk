# SPDX-License-Identifier: BSD-3-Clause
# Unit tests of the programs.
check_PROGRAMS += tests/unit/tools/test_compare tests/unit/tools/test_quote
TESTS += tests/unit/tools/test_compare tests/unit/tools/test_quote
tests_unit_tools_test_compare_SOURCES = \
	tests/unit/tools/test_compare.c \
	tools/doctor/findings.c
tests_unit_tools_test_compare_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir) $(CMOCKA_CFLAGS)
tests_unit_tools_test_compare_LDADD = libcommon.la $(CMOCKA_LIBS)
tests_unit_tools_test_quote_SOURCES = tests/unit/tools/test_quote.c
tests_unit_tools_test_quote_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir) $(CMOCKA_CFLAGS)
tests_unit_tools_test_quote_LDADD = libcommon.la $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/tools/test_output
TESTS += tests/unit/tools/test_output
tests_unit_tools_test_output_SOURCES = tests/unit/tools/test_output.c
tests_unit_tools_test_output_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir) $(CMOCKA_CFLAGS)
tests_unit_tools_test_output_LDADD = libcommon.la $(CMOCKA_LIBS)
