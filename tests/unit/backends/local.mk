# SPDX-License-Identifier: BSD-3-Clause
check_PROGRAMS += tests/unit/backends/test_registry
TESTS += tests/unit/backends/test_registry
tests_unit_backends_test_registry_SOURCES = tests/unit/backends/test_registry.c
tests_unit_backends_test_registry_LDADD = $(unit_test_libs)
