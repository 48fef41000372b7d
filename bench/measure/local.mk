# SPDX-License-Identifier: BSD-3-Clause
# What one rank does: its buffers, its calls, its times, its checks.
libbench_la_SOURCES += \
	bench/measure/buffers.c bench/measure/buffers.h \
	bench/measure/operation.c bench/measure/operation.h \
	bench/measure/measure.c bench/measure/measure.h \
	bench/measure/number.c bench/measure/number.h \
	bench/measure/order.c bench/measure/order.h \
	bench/measure/driver_libdist.c \
	bench/measure/pattern.c bench/measure/pattern.h \
	bench/measure/driver.h \
	bench/measure/serve.c bench/measure/serve.h
