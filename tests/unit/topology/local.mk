# SPDX-License-Identifier: BSD-3-Clause
check_PROGRAMS += \
	tests/unit/topology/test_crowd \
	tests/unit/topology/test_discover \
	tests/unit/topology/test_topology \
	tests/unit/topology/test_trees
TESTS += \
	tests/unit/topology/test_crowd \
	tests/unit/topology/test_discover \
	tests/unit/topology/test_topology \
	tests/unit/topology/test_trees

tests_unit_topology_test_crowd_SOURCES = tests/unit/topology/test_crowd.c
tests_unit_topology_test_crowd_LDADD = $(unit_test_libs)
tests_unit_topology_test_discover_SOURCES = tests/unit/topology/test_discover.c
tests_unit_topology_test_discover_LDADD = $(unit_test_libs)
tests_unit_topology_test_topology_SOURCES = tests/unit/topology/test_topology.c
tests_unit_topology_test_topology_LDADD = $(unit_test_libs)
tests_unit_topology_test_trees_SOURCES = tests/unit/topology/test_trees.c
tests_unit_topology_test_trees_LDADD = $(unit_test_libs)
