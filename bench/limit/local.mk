# SPDX-License-Identifier: BSD-3-Clause
# The bound of this machine.
libbench_la_SOURCES += \
	bench/limit/limit.c \
	bench/limit/limit_map.c bench/limit/limit_map.h \
	bench/limit/limit_short.c \
	bench/limit/limit_sum.c bench/limit/limit_sum.h
