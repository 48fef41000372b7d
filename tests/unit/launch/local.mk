# SPDX-License-Identifier: BSD-3-Clause
check_PROGRAMS += \
	tests/unit/launch/test_agents \
	tests/unit/launch/test_agents_elastic \
	tests/unit/launch/test_agents_killed \
	tests/unit/launch/test_agents_refused \
	tests/unit/launch/test_agents_strangers \
	tests/unit/launch/test_hmac \
	tests/unit/launch/test_hosts \
	tests/unit/launch/test_spawn
TESTS += \
	tests/unit/launch/test_agents \
	tests/unit/launch/test_agents_elastic \
	tests/unit/launch/test_agents_killed \
	tests/unit/launch/test_agents_refused \
	tests/unit/launch/test_agents_strangers \
	tests/unit/launch/test_hmac \
	tests/unit/launch/test_hosts \
	tests/unit/launch/test_spawn

tests_unit_launch_test_agents_SOURCES = \
	tests/unit/launch/test_agents.c tests/unit/launch/agents.h tests/unit/base/unit.h
tests_unit_launch_test_agents_LDADD = libagents.la $(unit_test_libs)
tests_unit_launch_test_agents_elastic_SOURCES = \
	tests/unit/launch/test_agents_elastic.c tests/unit/launch/agents.h tests/unit/base/unit.h
tests_unit_launch_test_agents_elastic_LDADD = libagents.la $(unit_test_libs)
tests_unit_launch_test_agents_killed_SOURCES = \
	tests/unit/launch/test_agents_killed.c tests/unit/launch/agents.h tests/unit/base/unit.h
tests_unit_launch_test_agents_killed_LDADD = libagents.la $(unit_test_libs)
tests_unit_launch_test_agents_refused_SOURCES = \
	tests/unit/launch/test_agents_refused.c tests/unit/launch/agents.h tests/unit/base/unit.h
tests_unit_launch_test_agents_refused_LDADD = libagents.la $(unit_test_libs)
tests_unit_launch_test_agents_strangers_SOURCES = \
	tests/unit/launch/test_agents_strangers.c tests/unit/launch/agents.h tests/unit/base/unit.h
tests_unit_launch_test_agents_strangers_LDADD = libagents.la $(unit_test_libs)
tests_unit_launch_test_hmac_SOURCES = tests/unit/launch/test_hmac.c tests/unit/base/unit.h
tests_unit_launch_test_hmac_LDADD = libagents.la $(unit_test_libs)
tests_unit_launch_test_hosts_SOURCES = tests/unit/launch/test_hosts.c tests/unit/base/unit.h
tests_unit_launch_test_hosts_LDADD = libagents.la $(unit_test_libs)
tests_unit_launch_test_spawn_SOURCES = tests/unit/launch/test_spawn.c
tests_unit_launch_test_spawn_LDADD = $(unit_test_libs)
