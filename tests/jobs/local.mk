# SPDX-License-Identifier: BSD-3-Clause
# Multi-process cases: each script is lines "launcher ranks program arguments" (see job.sh).
include tests/conformance/local.mk

check_PROGRAMS += tests/jobs/mishap
tests_jobs_mishap_SOURCES = tests/jobs/mishap.c
tests_jobs_mishap_LDADD = libdist.la
tests_jobs_mishap_LDFLAGS = $(job_ldflags)

check_PROGRAMS += tests/jobs/two_groups
tests_jobs_two_groups_SOURCES = tests/jobs/two_groups.c
tests_jobs_two_groups_LDADD = libdist.la
tests_jobs_two_groups_LDFLAGS = $(job_ldflags)
check_PROGRAMS += tests/jobs/bad_calls
tests_jobs_bad_calls_SOURCES = tests/jobs/bad_calls.c
tests_jobs_bad_calls_LDADD = libdist.la
tests_jobs_bad_calls_LDFLAGS = $(job_ldflags)
check_PROGRAMS += tests/jobs/bad_matches
tests_jobs_bad_matches_SOURCES = tests/jobs/bad_matches.c
tests_jobs_bad_matches_LDADD = libdist.la
tests_jobs_bad_matches_LDFLAGS = $(job_ldflags)

check_PROGRAMS += tests/jobs/reproducible
tests_jobs_reproducible_SOURCES = tests/jobs/reproducible.c
tests_jobs_reproducible_LDADD = libdist.la
tests_jobs_reproducible_LDFLAGS = $(job_ldflags)

job_scripts = \
	tests/jobs/conformance_gloo.sh \
	tests/jobs/conformance_algorithms.sh \
	tests/jobs/conformance_mpi.sh \
	tests/jobs/conformance_faulty.sh \
	tests/jobs/launchers.sh \
	tests/jobs/mishaps.sh \
	tests/jobs/two_groups.sh \
	tests/jobs/reproducible.sh \
	tests/jobs/bad_input.sh \
	tests/jobs/bad_calls.sh \
	tests/jobs/embedding.sh \
	tests/jobs/dist_info.sh \
	tests/jobs/train.sh \
	tests/jobs/train_accuracy.sh

TESTS += $(job_scripts)
EXTRA_DIST += $(job_scripts) tests/jobs/losses.awk
