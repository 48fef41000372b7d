# SPDX-License-Identifier: BSD-3-Clause
rendezvous_tests = \
	tests/unit/rendezvous/test_crowd \
	tests/unit/rendezvous/test_few_descriptors \
	tests/unit/rendezvous/test_launch \
	tests/unit/rendezvous/test_meet \
	tests/unit/rendezvous/test_process \
	tests/unit/rendezvous/test_resolve \
	tests/unit/rendezvous/test_schedule \
	tests/unit/rendezvous/test_secrets \
	tests/unit/rendezvous/test_store \
	tests/unit/rendezvous/test_store_ends \
	tests/unit/rendezvous/test_store_memory \
	tests/unit/rendezvous/test_store_parties \
	tests/unit/rendezvous/test_strangers \
	tests/unit/rendezvous/test_url
check_PROGRAMS += $(rendezvous_tests)
TESTS += $(rendezvous_tests)

tests_unit_rendezvous_test_crowd_SOURCES = tests/unit/rendezvous/test_crowd.c \
	tests/unit/rendezvous/ranks.h
tests_unit_rendezvous_test_crowd_LDADD = $(unit_test_libs)
tests_unit_rendezvous_test_few_descriptors_SOURCES = \
	tests/unit/rendezvous/test_few_descriptors.c tests/unit/rendezvous/ranks.h
tests_unit_rendezvous_test_few_descriptors_LDADD = $(unit_test_libs)
tests_unit_rendezvous_test_launch_SOURCES = tests/unit/rendezvous/test_launch.c \
	tests/unit/rendezvous/launchers.h
tests_unit_rendezvous_test_launch_LDADD = $(unit_test_libs)
tests_unit_rendezvous_test_meet_SOURCES = tests/unit/rendezvous/test_meet.c \
	tests/unit/rendezvous/launchers.h tests/unit/rendezvous/ranks.h
tests_unit_rendezvous_test_meet_LDADD = $(unit_test_libs)
tests_unit_rendezvous_test_process_SOURCES = tests/unit/rendezvous/test_process.c
tests_unit_rendezvous_test_process_LDADD = $(unit_test_libs)
tests_unit_rendezvous_test_resolve_SOURCES = tests/unit/rendezvous/test_resolve.c \
	tests/unit/rendezvous/launchers.h
tests_unit_rendezvous_test_resolve_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir) $(CMOCKA_CFLAGS)
tests_unit_rendezvous_test_resolve_LDADD = $(unit_test_libs) -ldl
tests_unit_rendezvous_test_schedule_SOURCES = tests/unit/rendezvous/test_schedule.c \
	tests/unit/rendezvous/ranks.h
tests_unit_rendezvous_test_schedule_LDADD = $(unit_test_libs)
tests_unit_rendezvous_test_secrets_SOURCES = tests/unit/rendezvous/test_secrets.c \
	tests/unit/rendezvous/ranks.h
tests_unit_rendezvous_test_secrets_LDADD = $(unit_test_libs)
tests_unit_rendezvous_test_store_SOURCES = tests/unit/rendezvous/test_store.c \
	tests/unit/rendezvous/ranks.h
tests_unit_rendezvous_test_store_LDADD = $(unit_test_libs)
tests_unit_rendezvous_test_store_ends_SOURCES = tests/unit/rendezvous/test_store_ends.c \
	tests/unit/rendezvous/ranks.h
tests_unit_rendezvous_test_store_ends_LDADD = $(unit_test_libs)
tests_unit_rendezvous_test_store_memory_SOURCES = \
	tests/unit/rendezvous/test_store_memory.c tests/unit/rendezvous/ranks.h
tests_unit_rendezvous_test_store_memory_LDADD = $(unit_test_libs)
tests_unit_rendezvous_test_store_parties_SOURCES = \
	tests/unit/rendezvous/test_store_parties.c tests/unit/rendezvous/ranks.h
tests_unit_rendezvous_test_store_parties_LDADD = $(unit_test_libs)
tests_unit_rendezvous_test_strangers_SOURCES = tests/unit/rendezvous/test_strangers.c \
	tests/unit/rendezvous/ranks.h
tests_unit_rendezvous_test_strangers_LDADD = $(unit_test_libs)
tests_unit_rendezvous_test_url_SOURCES = tests/unit/rendezvous/test_url.c
tests_unit_rendezvous_test_url_LDADD = $(unit_test_libs)

if HAVE_PMIX_HEADER
check_PROGRAMS += tests/unit/rendezvous/test_pmix_abi
TESTS += tests/unit/rendezvous/test_pmix_abi
endif
tests_unit_rendezvous_test_pmix_abi_SOURCES = tests/unit/rendezvous/test_pmix_abi.c
tests_unit_rendezvous_test_pmix_abi_CPPFLAGS = $(AM_CPPFLAGS) $(PMIX_CFLAGS)
tests_unit_rendezvous_test_pmix_abi_LDADD = $(unit_test_libs)
