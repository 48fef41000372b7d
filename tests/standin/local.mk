# SPDX-License-Identifier: BSD-3-Clause
# Stands for GPUs where there are none: see standin.h. Twice the same, as CUDA and as HIP.
standin_sources = \
	tests/standin/communicator.h \
	tests/standin/driver.c \
	tests/standin/driver_capture.c \
	tests/standin/driver_copy.c \
	tests/standin/driver_event.c \
	tests/standin/driver_memory.c \
	tests/standin/driver_stream.c \
	tests/standin/fault.c \
	tests/standin/nccl_abi.h \
	tests/standin/nccl_calls.c \
	tests/standin/nccl_check.c \
	tests/standin/nccl_comm.c \
	tests/standin/nccl_exchange.c \
	tests/standin/nccl_group.c \
	tests/standin/nccl_launch.c \
	tests/standin/nccl_mesh.c \
	tests/standin/nccl_reduce.c \
	tests/standin/nccl_run.c \
	tests/standin/nccl_split.c \
	tests/standin/standin.h

# Its threads outlive what loads it. -rpath makes libtool build a shared object.
standin_ldflags = $(module_ldflags) -Wl,-z,nodelete -rpath $(abs_builddir)

if HAVE_SHARED
check_LTLIBRARIES += standin_cuda.la standin_hip.la
endif
standin_cuda_la_LIBTOOLFLAGS = $(shared_only)
standin_cuda_la_SOURCES = $(standin_sources) tests/standin/runtime.c
standin_cuda_la_CPPFLAGS = $(AM_CPPFLAGS)
standin_cuda_la_LDFLAGS = $(standin_ldflags)
standin_cuda_la_LIBADD = -lm
standin_hip_la_LIBTOOLFLAGS = $(shared_only)
standin_hip_la_SOURCES = $(standin_sources)
standin_hip_la_CPPFLAGS = $(AM_CPPFLAGS) -DSTANDIN_HIP
standin_hip_la_LDFLAGS = $(standin_ldflags)
standin_hip_la_LIBADD = -lm

if HAVE_SHARED
check_LTLIBRARIES += standin_partial.la
endif
standin_partial_la_LIBTOOLFLAGS = $(shared_only)
standin_partial_la_SOURCES = tests/standin/partial.c tests/standin/nccl_abi.h
standin_partial_la_LDFLAGS = $(module_ldflags) -rpath $(abs_builddir)

# Stands for what UCX does to calls of libc.
if HAVE_SHARED
check_LTLIBRARIES += standin_hooks.la
endif
standin_hooks_la_LIBTOOLFLAGS = $(shared_only)
standin_hooks_la_SOURCES = tests/standin/hooks.c tests/standin/hooks.h
standin_hooks_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)
standin_hooks_la_LDFLAGS = $(standin_ldflags)
standin_hooks_la_LIBADD = -ldl

# Stands for a PMIx library whose server misbehaves.
if HAVE_SHARED
check_LTLIBRARIES += standin_pmix.la
endif
standin_pmix_la_SOURCES = tests/standin/pmix.c src/rendezvous/pmix_abi.h
standin_pmix_la_LDFLAGS = $(standin_ldflags)

if HAVE_CMOCKA
standin_tests = \
	tests/standin/test_capture \
	tests/standin/test_comm \
	tests/standin/test_driver \
	tests/standin/test_nccl
check_PROGRAMS += $(standin_tests)
if HAVE_SHARED
TESTS += $(standin_tests)
endif

standin_trial_sources = tests/standin/trial.c tests/standin/trial.h
standin_rank_sources = \
	$(standin_trial_sources) tests/standin/trial_rank.c tests/standin/trial_rank.h
tests_standin_test_capture_SOURCES = tests/standin/test_capture.c $(standin_trial_sources)
tests_standin_test_capture_LDADD = $(unit_test_libs)
tests_standin_test_comm_SOURCES = tests/standin/test_comm.c $(standin_rank_sources)
tests_standin_test_comm_LDADD = $(unit_test_libs)
tests_standin_test_driver_SOURCES = tests/standin/test_driver.c $(standin_trial_sources)
tests_standin_test_driver_LDADD = $(unit_test_libs)
tests_standin_test_nccl_SOURCES = tests/standin/test_nccl.c $(standin_rank_sources)
tests_standin_test_nccl_LDADD = $(unit_test_libs)
endif

# Stands for Ascend devices: see ascend.h.
if HAVE_SHARED
check_LTLIBRARIES += standin_ascend.la
endif
standin_ascend_la_LIBTOOLFLAGS = $(shared_only)
standin_ascend_la_SOURCES = \
	tests/standin/ascend.h \
	tests/standin/ascend_comm.c \
	tests/standin/ascend_comm.h \
	tests/standin/ascend_hccl.c \
	tests/standin/ascend_operation.c \
	tests/standin/ascend_reduce.c \
	tests/standin/ascend_runtime.c \
	tests/standin/ascend_stream.c
standin_ascend_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/tests
standin_ascend_la_LDFLAGS = $(standin_ldflags)
standin_ascend_la_LIBADD = -lm
