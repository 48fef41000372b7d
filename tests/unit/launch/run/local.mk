# SPDX-License-Identifier: BSD-3-Clause
check_PROGRAMS += tests/unit/launch/run/test_output tests/unit/launch/run/test_words
TESTS += tests/unit/launch/run/test_output tests/unit/launch/run/test_words

tests_unit_launch_run_test_output_SOURCES = tests/unit/launch/run/test_output.c
tests_unit_launch_run_test_output_LDADD = librun.la $(unit_test_libs)
tests_unit_launch_run_test_words_SOURCES = tests/unit/launch/run/test_words.c
tests_unit_launch_run_test_words_LDADD = librun.la $(unit_test_libs)
