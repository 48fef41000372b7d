# SPDX-License-Identifier: BSD-3-Clause
check_PROGRAMS += \
	tests/unit/collectives/test_block_faults \
	tests/unit/collectives/test_blocks \
	tests/unit/collectives/test_choose \
	tests/unit/collectives/test_faults \
	tests/unit/collectives/test_ordered \
	tests/unit/collectives/test_plan \
	tests/unit/collectives/test_races \
	tests/unit/collectives/test_select \
	tests/unit/collectives/test_simulate \
	tests/unit/collectives/test_tuning \
	tests/unit/collectives/test_verify \
	tests/unit/collectives/test_verify_sample
TESTS += \
	tests/unit/collectives/test_block_faults \
	tests/unit/collectives/test_blocks \
	tests/unit/collectives/test_choose \
	tests/unit/collectives/test_faults \
	tests/unit/collectives/test_ordered \
	tests/unit/collectives/test_plan \
	tests/unit/collectives/test_races \
	tests/unit/collectives/test_select \
	tests/unit/collectives/test_simulate \
	tests/unit/collectives/test_tuning \
	tests/unit/collectives/test_verify \
	tests/unit/collectives/test_verify_sample

planted_sources = tests/unit/collectives/planted.c tests/unit/collectives/planted.h

tests_unit_collectives_test_block_faults_SOURCES = \
	tests/unit/collectives/test_block_faults.c $(planted_sources)
tests_unit_collectives_test_block_faults_LDADD = libverify.la $(unit_test_libs)
tests_unit_collectives_test_blocks_SOURCES = tests/unit/collectives/test_blocks.c
tests_unit_collectives_test_blocks_LDADD = libverify.la $(unit_test_libs)
tests_unit_collectives_test_choose_SOURCES = tests/unit/collectives/test_choose.c
tests_unit_collectives_test_choose_LDADD = libverify.la $(unit_test_libs)
tests_unit_collectives_test_faults_SOURCES = \
	tests/unit/collectives/test_faults.c $(planted_sources)
tests_unit_collectives_test_faults_LDADD = libverify.la $(unit_test_libs)
tests_unit_collectives_test_ordered_SOURCES = \
	tests/unit/collectives/test_ordered.c $(planted_sources)
tests_unit_collectives_test_ordered_LDADD = libverify.la $(unit_test_libs)
tests_unit_collectives_test_plan_SOURCES = tests/unit/collectives/test_plan.c
tests_unit_collectives_test_plan_LDADD = libverify.la $(unit_test_libs)
tests_unit_collectives_test_races_SOURCES = \
	tests/unit/collectives/test_races.c $(planted_sources)
tests_unit_collectives_test_races_LDADD = libverify.la $(unit_test_libs)
tests_unit_collectives_test_select_SOURCES = tests/unit/collectives/test_select.c
tests_unit_collectives_test_select_LDADD = libverify.la $(unit_test_libs)
tests_unit_collectives_test_simulate_SOURCES = tests/unit/collectives/test_simulate.c
tests_unit_collectives_test_simulate_LDADD = libverify.la $(unit_test_libs)
tests_unit_collectives_test_tuning_SOURCES = tests/unit/collectives/test_tuning.c
tests_unit_collectives_test_tuning_LDADD = libverify.la $(unit_test_libs)
tests_unit_collectives_test_verify_SOURCES = tests/unit/collectives/test_verify.c
tests_unit_collectives_test_verify_LDADD = libverify.la $(unit_test_libs)
tests_unit_collectives_test_verify_sample_SOURCES = tests/unit/collectives/test_verify_sample.c
tests_unit_collectives_test_verify_sample_LDADD = libverify.la $(unit_test_libs)
