# SPDX-License-Identifier: BSD-3-Clause
# When who is measured: rounds, in turns.
libbench_la_SOURCES += \
	bench/rounds/digest.c bench/rounds/digest.h \
	bench/rounds/point.c bench/rounds/point.h \
	bench/rounds/run.c bench/rounds/run.h
