# SPDX-License-Identifier: BSD-3-Clause
ddp_tests = \
	tests/unit/ddp/test_layout \
	tests/unit/ddp/test_sampler \
	tests/unit/ddp/test_steps \
	tests/unit/ddp/test_zero
check_PROGRAMS += $(ddp_tests)
TESTS += $(ddp_tests)
ddp_test_headers = tests/unit/core/alone.h tests/unit/ddp/steps.h tests/unit/base/environment.h

tests_unit_ddp_test_layout_SOURCES = tests/unit/ddp/test_layout.c $(ddp_test_headers)
tests_unit_ddp_test_layout_LDADD = $(unit_test_libs)
tests_unit_ddp_test_sampler_SOURCES = tests/unit/ddp/test_sampler.c
tests_unit_ddp_test_sampler_LDADD = $(unit_test_libs)
tests_unit_ddp_test_steps_SOURCES = tests/unit/ddp/test_steps.c $(ddp_test_headers)
tests_unit_ddp_test_steps_LDADD = $(unit_test_libs) -lm
tests_unit_ddp_test_zero_SOURCES = tests/unit/ddp/test_zero.c $(ddp_test_headers)
tests_unit_ddp_test_zero_LDADD = $(unit_test_libs) -lm
