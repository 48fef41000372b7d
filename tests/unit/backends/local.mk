# SPDX-License-Identifier: BSD-3-Clause
check_PROGRAMS += tests/unit/backends/test_explain
TESTS += tests/unit/backends/test_explain
tests_unit_backends_test_explain_SOURCES = tests/unit/backends/test_explain.c
tests_unit_backends_test_explain_LDADD = $(unit_test_libs)
check_PROGRAMS += tests/unit/backends/test_mpi_abi
TESTS += tests/unit/backends/test_mpi_abi
tests_unit_backends_test_mpi_abi_SOURCES = tests/unit/backends/test_mpi_abi.c
tests_unit_backends_test_mpi_abi_LDADD = $(unit_test_libs)
check_PROGRAMS += tests/unit/backends/test_registry
TESTS += tests/unit/backends/test_registry
tests_unit_backends_test_registry_SOURCES = tests/unit/backends/test_registry.c
tests_unit_backends_test_registry_LDADD = $(unit_test_libs)

check_PROGRAMS += tests/unit/backends/test_nccl_close
TESTS += tests/unit/backends/test_nccl_close
tests_unit_backends_test_nccl_close_SOURCES = tests/unit/backends/test_nccl_close.c \
	$(nccl_module_sources)
tests_unit_backends_test_nccl_close_CPPFLAGS = $(AM_CPPFLAGS) -DCLOSE_LIMIT_MS=300
tests_unit_backends_test_nccl_close_LDADD = $(CMOCKA_LIBS) -ldl

if HAVE_NCCL_HEADER
check_PROGRAMS += tests/unit/backends/test_nccl_abi
TESTS += tests/unit/backends/test_nccl_abi
endif
tests_unit_backends_test_nccl_abi_SOURCES = tests/unit/backends/test_nccl_abi.c
tests_unit_backends_test_nccl_abi_CPPFLAGS = $(AM_CPPFLAGS) $(NCCL_CFLAGS) \
	-DNCCL_PREFIX='"$(nccl_prefix)"'
tests_unit_backends_test_nccl_abi_LDADD = $(unit_test_libs)
