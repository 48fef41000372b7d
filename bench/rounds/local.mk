# SPDX-License-Identifier: BSD-3-Clause
# When who is measured: rounds, in turns.
libbench_la_SOURCES += \
	bench/rounds/summary.c bench/rounds/summary.h \
	bench/rounds/measurement.c bench/rounds/measurement.h \
	bench/rounds/run.c bench/rounds/run.h
