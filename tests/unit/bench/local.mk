# SPDX-License-Identifier: BSD-3-Clause
# Unit tests of dist_bench, in one process.
bench_tests = \
	tests/unit/bench/test_html \
	tests/unit/bench/test_pattern \
	tests/unit/bench/test_result \
	tests/unit/bench/test_texts
check_PROGRAMS += $(bench_tests)
TESTS += $(bench_tests)

bench_test_cppflags = $(AM_CPPFLAGS) -I$(top_srcdir) $(CMOCKA_CFLAGS)
bench_test_libs = libbench.la $(unit_test_libs) -lm

tests_unit_bench_test_html_SOURCES = tests/unit/bench/test_html.c
tests_unit_bench_test_html_CPPFLAGS = $(bench_test_cppflags)
tests_unit_bench_test_html_LDADD = $(bench_test_libs)
tests_unit_bench_test_pattern_SOURCES = tests/unit/bench/test_pattern.c
tests_unit_bench_test_pattern_CPPFLAGS = $(bench_test_cppflags)
tests_unit_bench_test_pattern_LDADD = $(bench_test_libs)
tests_unit_bench_test_result_SOURCES = tests/unit/bench/test_result.c
tests_unit_bench_test_result_CPPFLAGS = $(bench_test_cppflags)
tests_unit_bench_test_result_LDADD = $(bench_test_libs)
tests_unit_bench_test_texts_SOURCES = tests/unit/bench/test_texts.c
tests_unit_bench_test_texts_CPPFLAGS = $(bench_test_cppflags)
tests_unit_bench_test_texts_LDADD = $(bench_test_libs)
