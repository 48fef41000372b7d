# SPDX-License-Identifier: BSD-3-Clause
# Multi-process cases: each script is lines "launcher ranks program arguments" (see job.sh).
include tests/conformance/local.mk

job_scripts = \
	tests/jobs/conformance_gloo.sh \
	tests/jobs/conformance_algorithms.sh \
	tests/jobs/conformance_mpi.sh \
	tests/jobs/conformance_faulty.sh \
	tests/jobs/launchers.sh

TESTS += $(job_scripts)
EXTRA_DIST += $(job_scripts)
