# SPDX-License-Identifier: BSD-3-Clause
# make check: units by floor, multi-process jobs, lint. Exit 0 is pass, 77 skip, else failure.

# Multi-process programs find library and modules in the build tree, and are no scripts.
job_ldflags = $(AM_LDFLAGS) -no-install
unit_test_libs = libdist_core.la $(CMOCKA_LIBS)

# The longest first, those that measure last: they wait for the other scripts.
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
include tests/fuzz/local.mk
include tests/standin/local.mk
include tests/standin/kernels/local.mk
include tests/lint/local.mk
TESTS += tests/support/planted.sh tests/support/left_planted.sh $(measuring_job_scripts)

# Faults for make check-tsan and make check-valgrind to see.
check_PROGRAMS += tests/support/planted_fault
tests_support_planted_fault_SOURCES = tests/support/planted_fault.c
TESTS += tests/support/planted_fault # skipped elsewhere; without this make has no rule to run it

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
# Each test has a limit, so that a hang costs a test and not the suite.
limited = $(BASH) $(top_srcdir)/tests/support/limit.sh
LOG_COMPILER = $(limited) $(unit_watch)
SH_LOG_COMPILER = $(limited) $(BASH)

# Where a test finds things. The rest of what jobs need is in tests/support/job.sh.
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

# The costs that tests have measured, and their cookie.
clean-local:
	rm -rf tests/cache tests/fuzz/kept tests/reports

# make test T="tests/unit/store/test_client shrink core": these tests, a script of tests/jobs by its name, all
# tests of a folder of tests/unit. Builds only the programs that they need.
test: all
	@srcdir='$(abs_top_srcdir)' $(BASH) $(top_srcdir)/tests/support/some.sh '$(TESTS)' '$(check_PROGRAMS)' '$(T)' \
	    $(MAKE) $(AM_MAKEFLAGS) check-TESTS
.PHONY: test

# The long forms: more ranks, real data, more epochs.
check-long:
	CHECK_LONG=1 $(MAKE) $(AM_MAKEFLAGS) check

# Tests once more where something watches them: the unit tests among TESTS, and jobs.
watched = builddir='$(abs_top_builddir)' $(BASH) $(top_srcdir)/tests/support/watched.sh

# In a build with --enable-sanitizers=thread: jobs of what has threads.
tsan_jobs = two_groups any_order short_calls flight shrink aborts forked churn tls agents ddp
check-tsan: all $(check_PROGRAMS) $(check_LTLIBRARIES)
	$(watched) tsan '$(TESTS)' '$(tsan_jobs)' $(MAKE) $(AM_MAKEFLAGS) check-TESTS

# Under valgrind, in a build without sanitizers.
valgrind_jobs = two_groups any_order short_calls churn
check-valgrind: all $(check_PROGRAMS) $(check_LTLIBRARIES)
	$(watched) valgrind '$(TESTS)' '$(valgrind_jobs)' $(MAKE) $(AM_MAKEFLAGS) check-TESTS \
		unit_watch='$(BASH) $(abs_top_srcdir)/tests/support/memcheck.sh'
.PHONY: check-long check-valgrind check-tsan
