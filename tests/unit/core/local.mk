# SPDX-License-Identifier: BSD-3-Clause
check_PROGRAMS += tests/unit/core/test_group tests/unit/core/test_op
TESTS += tests/unit/core/test_group tests/unit/core/test_op
tests_unit_core_test_group_SOURCES = tests/unit/core/test_group.c
tests_unit_core_test_group_LDADD = $(unit_test_libs)
tests_unit_core_test_op_SOURCES = tests/unit/core/test_op.c
tests_unit_core_test_op_LDADD = $(unit_test_libs)
