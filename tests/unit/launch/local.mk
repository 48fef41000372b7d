# SPDX-License-Identifier: BSD-3-Clause
check_PROGRAMS += tests/unit/launch/test_spawn
TESTS += tests/unit/launch/test_spawn

tests_unit_launch_test_spawn_SOURCES = tests/unit/launch/test_spawn.c
tests_unit_launch_test_spawn_LDADD = $(unit_test_libs)
