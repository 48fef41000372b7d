# SPDX-License-Identifier: BSD-3-Clause
core_tests = \
	tests/unit/core/test_blocks \
	tests/unit/core/test_choices \
	tests/unit/core/test_group \
	tests/unit/core/test_groups \
	tests/unit/core/test_groups_end \
	tests/unit/core/test_groups_many \
	tests/unit/core/test_identity \
	tests/unit/core/test_init \
	tests/unit/core/test_meanwhile \
	tests/unit/core/test_numerics \
	tests/unit/core/test_op \
	tests/unit/core/test_shared \
	tests/unit/core/test_states \
	tests/unit/core/test_support
check_PROGRAMS += $(core_tests)
TESTS += $(core_tests)

tests_unit_core_test_blocks_SOURCES = tests/unit/core/test_blocks.c
tests_unit_core_test_blocks_LDADD = $(unit_test_libs)
tests_unit_core_test_choices_SOURCES = tests/unit/core/test_choices.c tests/unit/core/worlds.h
tests_unit_core_test_choices_LDADD = $(unit_test_libs)
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
tests_unit_core_test_identity_SOURCES = tests/unit/core/test_identity.c
tests_unit_core_test_identity_LDADD = $(unit_test_libs)
tests_unit_core_test_init_SOURCES = tests/unit/core/test_init.c tests/unit/core/job.h \
	tests/unit/rendezvous/ranks.h
tests_unit_core_test_init_LDADD = $(unit_test_libs)
tests_unit_core_test_meanwhile_SOURCES = tests/unit/core/test_meanwhile.c \
	tests/unit/core/worlds.h
tests_unit_core_test_meanwhile_LDADD = $(unit_test_libs)
tests_unit_core_test_numerics_SOURCES = tests/unit/core/test_numerics.c
tests_unit_core_test_numerics_LDADD = $(unit_test_libs)
tests_unit_core_test_op_SOURCES = tests/unit/core/test_op.c tests/unit/core/alone.h
tests_unit_core_test_op_LDADD = $(unit_test_libs)
tests_unit_core_test_shared_SOURCES = tests/unit/core/test_shared.c tests/unit/core/alone.h \
	tests/unit/core/worlds.h
tests_unit_core_test_shared_LDADD = $(unit_test_libs)
tests_unit_core_test_states_SOURCES = tests/unit/core/test_states.c
tests_unit_core_test_states_LDADD = $(unit_test_libs)
tests_unit_core_test_support_SOURCES = tests/unit/core/test_support.c
tests_unit_core_test_support_LDADD = $(unit_test_libs)

# Requests, with a backend that completes a call when the test triggers it.
works_tests = \
	tests/unit/core/test_drive \
	tests/unit/core/test_handles \
	tests/unit/core/test_memory \
	tests/unit/core/test_others \
	tests/unit/core/test_progress \
	tests/unit/core/test_stream \
	tests/unit/core/test_works
check_PROGRAMS += $(works_tests)
TESTS += $(works_tests)
works_fake = tests/unit/core/fake.c tests/unit/core/fake.h
tests_unit_core_test_drive_SOURCES = tests/unit/core/test_drive.c $(works_fake)
tests_unit_core_test_drive_LDADD = $(unit_test_libs)
tests_unit_core_test_handles_SOURCES = tests/unit/core/test_handles.c $(works_fake) \
	tests/unit/core/alone.h
tests_unit_core_test_handles_LDADD = $(unit_test_libs)
tests_unit_core_test_memory_SOURCES = tests/unit/core/test_memory.c $(works_fake) \
	tests/unit/core/alone.h tests/unit/core/worlds.h tests/unit/rendezvous/ranks.h
tests_unit_core_test_memory_LDADD = $(unit_test_libs)
tests_unit_core_test_others_SOURCES = tests/unit/core/test_others.c $(works_fake)
tests_unit_core_test_others_LDADD = $(unit_test_libs)
tests_unit_core_test_progress_SOURCES = tests/unit/core/test_progress.c $(works_fake)
tests_unit_core_test_progress_LDADD = $(unit_test_libs)
tests_unit_core_test_stream_SOURCES = tests/unit/core/test_stream.c $(works_fake)
tests_unit_core_test_stream_LDADD = $(unit_test_libs)
tests_unit_core_test_works_SOURCES = tests/unit/core/test_works.c $(works_fake)
tests_unit_core_test_works_LDADD = $(unit_test_libs)

# Requests of real ranks.
works_rank_tests = \
	tests/unit/core/test_batch \
	tests/unit/core/test_losses \
	tests/unit/core/test_mismatch \
	tests/unit/core/test_overlap
check_PROGRAMS += $(works_rank_tests)
TESTS += $(works_rank_tests)
works_job = tests/unit/core/job.h tests/unit/rendezvous/ranks.h
tests_unit_core_test_batch_SOURCES = tests/unit/core/test_batch.c $(works_job)
tests_unit_core_test_batch_LDADD = $(unit_test_libs)
tests_unit_core_test_losses_SOURCES = tests/unit/core/test_losses.c $(works_job)
tests_unit_core_test_losses_LDADD = $(unit_test_libs)
tests_unit_core_test_mismatch_SOURCES = tests/unit/core/test_mismatch.c $(works_job)
tests_unit_core_test_mismatch_LDADD = $(unit_test_libs)
tests_unit_core_test_overlap_SOURCES = tests/unit/core/test_overlap.c $(works_job)
tests_unit_core_test_overlap_LDADD = $(unit_test_libs)
