# SPDX-License-Identifier: BSD-3-Clause
check_PROGRAMS += \
	tests/unit/base/test_base \
	tests/unit/base/test_config \
	tests/unit/base/test_crc32c \
	tests/unit/base/test_descriptor \
	tests/unit/base/test_dtype \
	tests/unit/base/test_faults \
	tests/unit/base/test_file \
	tests/unit/base/test_half \
	tests/unit/base/test_host_name \
	tests/unit/base/test_locale \
	tests/unit/base/test_lock \
	tests/unit/base/test_log \
	tests/unit/base/test_process_end \
	tests/unit/base/test_process_reach \
	tests/unit/base/test_proof \
	tests/unit/base/test_tls \
	tests/unit/base/test_variables
TESTS += \
	tests/unit/base/test_base \
	tests/unit/base/test_config \
	tests/unit/base/test_crc32c \
	tests/unit/base/test_descriptor \
	tests/unit/base/test_dtype \
	tests/unit/base/test_faults \
	tests/unit/base/test_file \
	tests/unit/base/test_half \
	tests/unit/base/test_host_name \
	tests/unit/base/test_locale \
	tests/unit/base/test_lock \
	tests/unit/base/test_log \
	tests/unit/base/test_process_end \
	tests/unit/base/test_process_reach \
	tests/unit/base/test_proof \
	tests/unit/base/test_tls \
	tests/unit/base/test_variables

tests_unit_base_test_base_SOURCES = tests/unit/base/test_base.c tests/unit/base/unit.h
tests_unit_base_test_base_LDADD = $(unit_test_libs)
tests_unit_base_test_config_SOURCES = tests/unit/base/test_config.c tests/unit/base/unit.h
tests_unit_base_test_config_LDADD = $(unit_test_libs)
tests_unit_base_test_crc32c_SOURCES = tests/unit/base/test_crc32c.c tests/unit/base/unit.h
tests_unit_base_test_crc32c_LDADD = $(unit_test_libs)
tests_unit_base_test_descriptor_SOURCES = tests/unit/base/test_descriptor.c
tests_unit_base_test_descriptor_LDADD = $(unit_test_libs)
tests_unit_base_test_dtype_SOURCES = \
	tests/unit/base/test_dtype.c \
	tests/unit/base/environment.h \
	tests/unit/base/reference.c tests/unit/base/reference.h tests/unit/base/unit.h
tests_unit_base_test_dtype_LDADD = $(unit_test_libs) -lm
tests_unit_base_test_faults_SOURCES = tests/unit/base/test_faults.c tests/unit/base/unit.h
tests_unit_base_test_faults_LDADD = $(unit_test_libs)
tests_unit_base_test_file_SOURCES = tests/unit/base/test_file.c tests/unit/base/unit.h
tests_unit_base_test_file_LDADD = $(unit_test_libs)
tests_unit_base_test_half_SOURCES = \
	tests/unit/base/test_half.c \
	tests/unit/base/reference.c tests/unit/base/reference.h tests/unit/base/unit.h
tests_unit_base_test_half_LDADD = $(unit_test_libs) -lm
tests_unit_base_test_host_name_SOURCES = tests/unit/base/test_host_name.c tests/unit/base/unit.h
tests_unit_base_test_host_name_LDADD = $(unit_test_libs)
tests_unit_base_test_locale_SOURCES = tests/unit/base/test_locale.c tests/unit/base/unit.h
tests_unit_base_test_locale_LDADD = libagents.la $(unit_test_libs)
tests_unit_base_test_proof_SOURCES = tests/unit/base/test_proof.c tests/unit/base/unit.h
tests_unit_base_test_proof_LDADD = $(unit_test_libs)
tests_unit_base_test_tls_SOURCES = tests/unit/base/test_tls.c tests/unit/base/unit.h \
	tests/unit/base/certificates.c tests/unit/base/certificates.h
tests_unit_base_test_tls_LDADD = $(unit_test_libs) $(OPENSSL_LIBS)
tests_unit_base_test_lock_SOURCES = tests/unit/base/test_lock.c tests/unit/base/unit.h
tests_unit_base_test_lock_LDADD = $(unit_test_libs)
tests_unit_base_test_log_SOURCES = tests/unit/base/test_log.c tests/unit/base/unit.h
tests_unit_base_test_log_LDADD = $(unit_test_libs)
tests_unit_base_test_variables_SOURCES = tests/unit/base/test_variables.c tests/unit/base/unit.h
tests_unit_base_test_variables_LDADD = $(unit_test_libs)
tests_unit_base_test_process_end_SOURCES = tests/unit/base/test_process_end.c \
	tests/unit/base/first_ended.h tests/unit/base/unit.h
tests_unit_base_test_process_end_LDADD = $(unit_test_libs)
tests_unit_base_test_process_reach_SOURCES = tests/unit/base/test_process_reach.c \
	tests/unit/base/first_ended.h tests/unit/base/unit.h
tests_unit_base_test_process_reach_LDADD = $(unit_test_libs)
