# SPDX-License-Identifier: BSD-3-Clause
# Who is measured: jobs of processes, and the ranks of this one.
libbench_la_SOURCES += \
	bench/jobs/libraries.c bench/jobs/libraries.h \
	bench/jobs/job.c bench/jobs/job.h \
	bench/jobs/job_protocol.c \
	bench/jobs/peer.c bench/jobs/peer.h \
	bench/jobs/group_runner.c bench/jobs/group_runner.h \
	bench/jobs/runner.h \
	bench/jobs/spec.c bench/jobs/spec.h
