# SPDX-License-Identifier: BSD-3-Clause
node_unit_tests = \
	tests/unit/node/test_overflow \
	tests/unit/node/test_migrate \
	tests/unit/node/test_buddy \
	tests/unit/node/test_first_ended \
	tests/unit/node/test_copy_mode \
	tests/unit/node/test_lead \
	tests/unit/node/test_litmus \
	tests/unit/node/test_move \
	tests/unit/node/test_selector \
	tests/unit/node/test_op \
	tests/unit/node/test_segment \
	tests/unit/node/test_segment_arena \
	tests/unit/node/test_segment_ends \
	tests/unit/node/test_segment_peer \
	tests/unit/node/test_segment_register

check_PROGRAMS += $(node_unit_tests)
TESTS += $(node_unit_tests)

tests_unit_node_test_migrate_SOURCES = tests/unit/node/test_migrate.c
tests_unit_node_test_migrate_LDADD = $(unit_test_libs)

tests_unit_node_test_overflow_SOURCES = tests/unit/node/test_overflow.c
tests_unit_node_test_overflow_LDADD = $(unit_test_libs)

tests_unit_node_test_buddy_SOURCES = tests/unit/node/test_buddy.c tests/unit/node/unit.h
tests_unit_node_test_buddy_LDADD = $(unit_test_libs)

tests_unit_node_test_selector_SOURCES = tests/unit/node/test_selector.c
tests_unit_node_test_selector_LDADD = $(unit_test_libs)

tests_unit_node_test_copy_mode_SOURCES = tests/unit/node/test_copy_mode.c
tests_unit_node_test_copy_mode_LDADD = $(unit_test_libs)

tests_unit_node_test_lead_SOURCES = tests/unit/node/test_lead.c
tests_unit_node_test_lead_LDADD = $(unit_test_libs)

tests_unit_node_test_litmus_SOURCES = tests/unit/node/test_litmus.c tests/unit/node/unit.h
tests_unit_node_test_litmus_LDADD = $(unit_test_libs)

tests_unit_node_test_move_SOURCES = tests/unit/node/test_move.c
tests_unit_node_test_move_LDADD = $(unit_test_libs)

tests_unit_node_test_op_SOURCES = \
	tests/unit/node/test_op.c tests/unit/base/transitions.h
tests_unit_node_test_op_LDADD = $(unit_test_libs)

tests_unit_node_test_segment_SOURCES = tests/unit/node/test_segment.c tests/unit/node/unit.h
tests_unit_node_test_segment_LDADD = $(unit_test_libs)

tests_unit_node_test_segment_arena_SOURCES = \
	tests/unit/node/test_segment_arena.c tests/unit/node/unit.h
tests_unit_node_test_segment_arena_LDADD = $(unit_test_libs)

tests_unit_node_test_first_ended_SOURCES = tests/unit/node/test_first_ended.c \
	tests/unit/node/unit.h tests/unit/base/first_ended.h
tests_unit_node_test_first_ended_LDADD = $(unit_test_libs)

tests_unit_node_test_segment_peer_SOURCES = \
	tests/unit/node/test_segment_peer.c tests/unit/node/unit.h
tests_unit_node_test_segment_peer_LDADD = $(unit_test_libs)

tests_unit_node_test_segment_ends_SOURCES = \
	tests/unit/node/test_segment_ends.c tests/unit/node/unit.h
tests_unit_node_test_segment_ends_LDADD = $(unit_test_libs)

tests_unit_node_test_segment_register_SOURCES = \
	tests/unit/node/test_segment_register.c tests/unit/node/unit.h
tests_unit_node_test_segment_register_LDADD = $(unit_test_libs)
