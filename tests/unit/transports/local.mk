# SPDX-License-Identifier: BSD-3-Clause

check_PROGRAMS += tests/unit/transports/test_match
TESTS += tests/unit/transports/test_match
tests_unit_transports_test_match_SOURCES = tests/unit/transports/test_match.c
tests_unit_transports_test_match_LDADD = $(unit_test_libs)
