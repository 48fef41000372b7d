# SPDX-License-Identifier: BSD-3-Clause
# make check: unit tests by module, multi-process jobs, lint. Exit codes: 0 pass, 77 skip, else failure.

# Multi-process programs are linked so that they find the library in the build tree without libtool's
# wrapper scripts.
job_ldflags = $(AM_LDFLAGS) -no-install
unit_test_libs = libdist_core.la $(CMOCKA_LIBS)

# The longest scripts first. Scripts that measure come last, since they wait for the other scripts.
include tests/jobs/local.mk
if HAVE_CMOCKA
include tests/unit/base/local.mk
include tests/unit/topology/local.mk
include tests/unit/rendezvous/local.mk
include tests/unit/node/local.mk
include tests/unit/collectives/local.mk
include tests/unit/transports/local.mk
include tests/unit/engine/local.mk
include tests/unit/backends/local.mk
include tests/unit/core/local.mk
include tests/unit/ddp/local.mk
include tests/unit/launch/local.mk
include tests/unit/launch/run/local.mk
include tests/unit/bench/local.mk
include tests/unit/tools/local.mk
include tests/unit/train/local.mk
else
TESTS += tests/support/no_cmocka.sh
endif
# Fuzzing of the parsers. With --enable-fuzzers libFuzzer generates inputs (make fuzz); otherwise the
# program runs only the stored inputs, as a test.
check_PROGRAMS += tests/fuzz/fuzz
tests_fuzz_fuzz_SOURCES = \
	tests/fuzz/fuzz.h tests/fuzz/main.c tests/fuzz/input.c tests/fuzz/streams.c \
	tests/fuzz/agents.c \
	tests/fuzz/baseline.c \
	tests/fuzz/checkpoint.c \
	tests/fuzz/clock.c \
	tests/fuzz/command.c \
	tests/fuzz/dataset.c \
	tests/fuzz/module.c \
	tests/fuzz/settings.c \
	tests/fuzz/shm.c \
	tests/fuzz/store_client.c \
	tests/fuzz/store_server.c \
	tests/fuzz/tcp.c \
	tests/fuzz/tuning.c \
	 bench/result.c
if !HAVE_FUZZER
tests_fuzz_fuzz_SOURCES += tests/fuzz/replay.c
endif
tests_fuzz_fuzz_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)
tests_fuzz_fuzz_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
tests_fuzz_fuzz_LDFLAGS = $(job_ldflags) $(FUZZ_LDFLAGS) \
	-Wl,--wrap=clock_gettime,--wrap=timerfd_settime
tests_fuzz_fuzz_LDADD = librun.la libtrain.la libdist_core.la $(CBLAS_LIBS) \
	$(JANSSON_LIBS) $(ZLIB_LIBS) -lm
TESTS += tests/fuzz/corpus.sh
EXTRA_DIST += tests/README.md tests/fuzz/corpus tests/fuzz/corpus.py tests/fuzz/corpus.sh tests/fuzz/run.sh \
	tests/fuzz/coverage.sh tests/fuzz/parsers

FUZZ_SECONDS = 10
fuzz: tests/fuzz/fuzz
	$(AM_TESTS_ENVIRONMENT) FUZZ_SECONDS='$(FUZZ_SECONDS)' $(BASH) $(srcdir)/tests/fuzz/run.sh
# Coverage of the parsers by the stored inputs, in the same build.
fuzz-coverage: tests/fuzz/fuzz
	$(AM_TESTS_ENVIRONMENT) $(BASH) $(srcdir)/tests/fuzz/coverage.sh
.PHONY: fuzz fuzz-coverage
# A simulated GPU driver for machines without GPUs (see standin.h), built as CUDA and as HIP.
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

# nodelete: its threads outlive the program's use of it. -rpath makes libtool build a shared object.
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

# Simulates UCX's replacement of libc functions.
if HAVE_SHARED
check_LTLIBRARIES += standin_hooks.la
endif
standin_hooks_la_LIBTOOLFLAGS = $(shared_only)
standin_hooks_la_SOURCES = tests/standin/hooks.c tests/standin/hooks.h
standin_hooks_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)
standin_hooks_la_LDFLAGS = $(standin_ldflags)
standin_hooks_la_LIBADD = -ldl

# Simulates a PMIx library whose server misbehaves.
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

# Simulates Ascend devices: see ascend.h.
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
# train_mnist's GPU kernels compiled for the CPU: replaces the real module, and uses the simulated
# driver.
if HAVE_SHARED
if HAVE_CXX17
check_LTLIBRARIES += tests/standin/kernels/train_mnist_cuda.la
endif
endif
tests_standin_kernels_train_mnist_cuda_la_SOURCES = \
	tests/standin/kernels/cublas.cc \
	tests/standin/kernels/cuda_on_host.h \
	tests/standin/kernels/runtime.cc \
	tests/standin/kernels/train.cc \
	train/gemm.c
tests_standin_kernels_train_mnist_cuda_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)
tests_standin_kernels_train_mnist_cuda_la_CFLAGS = $(train_cflags)
tests_standin_kernels_train_mnist_cuda_la_CXXFLAGS = -std=c++17 -O2 -ffp-contract=off -Wall -Wextra \
	-Wshadow -fvisibility=hidden -ftls-model=initial-exec -pthread $(DISTI_LDFLAGS)
tests_standin_kernels_train_mnist_cuda_la_LDFLAGS = $(module_ldflags) -Wl,-z,nodelete \
	-rpath $(abs_builddir)
tests_standin_kernels_train_mnist_cuda_la_LIBADD = $(CBLAS_LIBS) -ldl
# The lint rules, and a test that each rule can fail.
TESTS += tests/lint/lint.sh tests/lint/planted.sh
EXTRA_DIST += \
	tests/lint/code.awk \
	tests/lint/lint.sh \
	tests/lint/planted.sh \
	tests/lint/rules.sh \
	tests/lint/structure.py \
	tests/lint/symbols \
	tests/lint/words
TESTS += tests/support/planted.sh tests/support/left_planted.sh $(measuring_job_scripts)

# Planted faults that make check-tsan and make check-valgrind must report.
check_PROGRAMS += tests/support/planted_fault
tests_support_planted_fault_SOURCES = tests/support/planted_fault.c
TESTS += tests/support/planted_fault # skipped in other builds; needed for make's rule to run it

EXTRA_DIST += \
	tests/support/count.sh \
	tests/support/job.sh \
	tests/support/killed.sh \
	tests/support/limit.sh \
	tests/support/left.sh \
	tests/support/left_planted.sh \
	tests/support/lsan.supp \
	tests/support/memcheck.sh \
	tests/support/memcheck.supp \
	tests/support/no_cmocka.sh \
	tests/support/nodes.sh \
	tests/support/tls.sh \
	tests/support/torch.sh \
	tests/support/training.sh \
	tests/support/slurm.sh \
	tests/support/some.sh \
	tests/support/survives.sh \
	tests/support/planted.sh \
	tests/support/planted_job.sh \
	tests/support/watched.sh
CLEANFILES += tests/jobs.lock tests/jobs.port tests/jobs.port.lock \
	tests/install.lock check.log

TEST_EXTENSIONS = .sh
# Each test has a time limit, so that a hang fails one test and does not block the suite.
limited = $(BASH) $(top_srcdir)/tests/support/limit.sh
LOG_COMPILER = $(limited) $(unit_watch)
SH_LOG_COMPILER = $(limited) $(BASH)

# Environment of all tests. tests/support/job.sh sets more variables for jobs.
AM_TESTS_ENVIRONMENT = \
	srcdir='$(abs_top_srcdir)'; export srcdir; \
	builddir='$(abs_top_builddir)'; export builddir; \
	DIST_PLUGIN_PATH='$(abs_top_builddir)/.libs:$(abs_top_builddir)/tests/conformance/.libs'; \
	export DIST_PLUGIN_PATH; \
	DIST_FLIGHT_FILE=/dev/null; export DIST_FLIGHT_FILE; \
	XDG_CACHE_HOME='$(abs_top_builddir)/tests/cache'; export XDG_CACHE_HOME; \
	XDG_CONFIG_HOME='$(abs_top_builddir)/tests/cache'; export XDG_CONFIG_HOME; \
	DIST_TEST_MNIST="$${DIST_TEST_MNIST-$(abs_top_srcdir)/../shared/mnist}"; \
	export DIST_TEST_MNIST; \
	OPENMPI_RUN='$(OPENMPI_RUN)'; export OPENMPI_RUN; \
	MPICH_RUN='$(MPICH_RUN)'; export MPICH_RUN; \
	$(sanitizer_environment)

sanitizer_environment = \
	ASAN_OPTIONS="detect_leaks=1:$$ASAN_OPTIONS"; export ASAN_OPTIONS; \
	LSAN_OPTIONS="suppressions=$(abs_top_srcdir)/tests/support/lsan.supp:print_suppressions=0:$$LSAN_OPTIONS"; \
	export LSAN_OPTIONS; \
	UBSAN_OPTIONS="print_stacktrace=1:$$UBSAN_OPTIONS"; export UBSAN_OPTIONS;

# Remove the costs that tests have measured, their cookie, and other output.
clean-local:
	rm -rf tests/cache tests/fuzz/kept tests/reports

# make test T="tests/unit/store/test_client shrink core" runs some tests. A word of T is the path of a test,
# the name of a script in tests/jobs, or a directory of tests/unit. Builds only the programs that they need.
test: all
	@srcdir='$(abs_top_srcdir)' $(BASH) $(top_srcdir)/tests/support/some.sh '$(TESTS)' '$(check_PROGRAMS)' '$(T)' \
	    $(MAKE) $(AM_MAKEFLAGS) check-TESTS
.PHONY: test

# The long form of the tests: more ranks, real data, more epochs.
check-long:
	CHECK_LONG=1 $(MAKE) $(AM_MAKEFLAGS) check

# Tests under a checker: the unit tests in TESTS, and some jobs.
watched = builddir='$(abs_top_builddir)' $(BASH) $(top_srcdir)/tests/support/watched.sh

# check-tsan needs a build with --enable-sanitizers=thread. It runs jobs that use threads.
tsan_jobs = two_groups any_order short_calls flight shrink aborts forked churn tls agents ddp
check-tsan: all $(check_PROGRAMS) $(check_LTLIBRARIES)
	$(watched) tsan '$(TESTS)' '$(tsan_jobs)' $(MAKE) $(AM_MAKEFLAGS) check-TESTS

# check-valgrind needs a build without sanitizers.
valgrind_jobs = two_groups any_order short_calls churn
check-valgrind: all $(check_PROGRAMS) $(check_LTLIBRARIES)
	$(watched) valgrind '$(TESTS)' '$(valgrind_jobs)' $(MAKE) $(AM_MAKEFLAGS) check-TESTS \
		unit_watch='$(BASH) $(abs_top_srcdir)/tests/support/memcheck.sh'
.PHONY: check-long check-valgrind check-tsan
