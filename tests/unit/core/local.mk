# SPDX-License-Identifier: BSD-3-Clause
core_tests = \
	tests/unit/core/test_group \
	tests/unit/core/test_groups \
	tests/unit/core/test_groups_end \
	tests/unit/core/test_groups_many \
	tests/unit/core/test_op
check_PROGRAMS += $(core_tests)
TESTS += $(core_tests)

tests_unit_core_test_group_SOURCES = tests/unit/core/test_group.c
tests_unit_core_test_group_LDADD = $(unit_test_libs)
tests_unit_core_test_groups_SOURCES = tests/unit/core/test_groups.c tests/unit/core/worlds.h
tests_unit_core_test_groups_LDADD = $(unit_test_libs)
tests_unit_core_test_groups_end_SOURCES = tests/unit/core/test_groups_end.c \
	tests/unit/core/worlds.h
tests_unit_core_test_groups_end_LDADD = $(unit_test_libs)
tests_unit_core_test_groups_many_SOURCES = tests/unit/core/test_groups_many.c \
	tests/unit/core/worlds.h
tests_unit_core_test_groups_many_LDADD = $(unit_test_libs)
tests_unit_core_test_op_SOURCES = tests/unit/core/test_op.c
tests_unit_core_test_op_LDADD = $(unit_test_libs)
