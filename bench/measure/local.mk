# SPDX-License-Identifier: BSD-3-Clause
# What one rank does: its buffers, its calls, its times, its checks.
libbench_la_SOURCES += \
	bench/pattern.c bench/measure.h \
	bench/measure.c \
	bench/driver_libdist.c
