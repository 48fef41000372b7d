# SPDX-License-Identifier: BSD-3-Clause
check_PROGRAMS += tests/unit/core/test_group
TESTS += tests/unit/core/test_group
tests_unit_core_test_group_SOURCES = tests/unit/core/test_group.c
tests_unit_core_test_group_LDADD = $(unit_test_libs)
