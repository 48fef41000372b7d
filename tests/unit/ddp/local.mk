# SPDX-License-Identifier: BSD-3-Clause
ddp_tests = tests/unit/ddp/test_sampler
check_PROGRAMS += $(ddp_tests)
TESTS += $(ddp_tests)

tests_unit_ddp_test_sampler_SOURCES = tests/unit/ddp/test_sampler.c
tests_unit_ddp_test_sampler_LDADD = $(unit_test_libs)
