# SPDX-License-Identifier: BSD-3-Clause
engine_unit_tests = \
	tests/unit/engine/test_beside \
	tests/unit/engine/test_bind \
	tests/unit/engine/test_calls \
	tests/unit/engine/test_collectives \
	tests/unit/engine/test_endpoint \
	tests/unit/engine/test_envelope \
	tests/unit/engine/test_p2p \
	tests/unit/engine/test_reproducible \
	tests/unit/engine/test_task \
	tests/unit/engine/test_tune \
	tests/unit/engine/test_tune_fit \
	tests/unit/engine/test_wait

# Ranks with engines, for tests that need them.
engine_ranks = \
	tests/unit/engine/engine_rank.c \
	tests/unit/engine/engine_rank.h \
	tests/unit/rendezvous/ranks.h

check_PROGRAMS += $(engine_unit_tests)
TESTS += $(engine_unit_tests)

tests_unit_engine_test_beside_SOURCES = tests/unit/engine/test_beside.c $(engine_ranks)
tests_unit_engine_test_beside_LDADD = $(unit_test_libs)

tests_unit_engine_test_bind_SOURCES = tests/unit/engine/test_bind.c
tests_unit_engine_test_bind_LDADD = $(unit_test_libs)

tests_unit_engine_test_calls_SOURCES = tests/unit/engine/test_calls.c $(engine_ranks)
tests_unit_engine_test_calls_LDADD = $(unit_test_libs)

tests_unit_engine_test_collectives_SOURCES = tests/unit/engine/test_collectives.c $(engine_ranks)
tests_unit_engine_test_collectives_LDADD = $(unit_test_libs)

tests_unit_engine_test_endpoint_SOURCES = tests/unit/engine/test_endpoint.c
tests_unit_engine_test_endpoint_LDADD = $(unit_test_libs)

tests_unit_engine_test_envelope_SOURCES = tests/unit/engine/test_envelope.c
tests_unit_engine_test_envelope_LDADD = $(unit_test_libs)

tests_unit_engine_test_p2p_SOURCES = tests/unit/engine/test_p2p.c $(engine_ranks)
tests_unit_engine_test_p2p_LDADD = $(unit_test_libs)


tests_unit_engine_test_reproducible_SOURCES = \
	tests/unit/engine/test_reproducible.c $(engine_ranks)
tests_unit_engine_test_reproducible_LDADD = $(unit_test_libs) -lm

tests_unit_engine_test_task_SOURCES = \
	tests/unit/engine/test_task.c tests/unit/base/transitions.h
tests_unit_engine_test_task_LDADD = $(unit_test_libs)

tests_unit_engine_test_tune_SOURCES = tests/unit/engine/test_tune.c $(engine_ranks)
tests_unit_engine_test_tune_LDADD = $(unit_test_libs)

tests_unit_engine_test_tune_fit_SOURCES = tests/unit/engine/test_tune_fit.c
tests_unit_engine_test_tune_fit_LDADD = $(unit_test_libs) -lm

tests_unit_engine_test_wait_SOURCES = tests/unit/engine/test_wait.c
tests_unit_engine_test_wait_LDADD = $(unit_test_libs)
