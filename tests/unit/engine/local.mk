# SPDX-License-Identifier: BSD-3-Clause
check_PROGRAMS += tests/unit/engine/test_wait
TESTS += tests/unit/engine/test_wait
tests_unit_engine_test_wait_SOURCES = tests/unit/engine/test_wait.c
tests_unit_engine_test_wait_LDADD = $(unit_test_libs)
