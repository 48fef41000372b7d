# SPDX-License-Identifier: BSD-3-Clause
# Who is measured: jobs of processes, and the ranks of this one.
libbench_la_SOURCES += \
	bench/job.c \
	bench/jobs.h \
	bench/libraries.c 
