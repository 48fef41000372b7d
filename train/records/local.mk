# SPDX-License-Identifier: BSD-3-Clause
# What a training leaves behind.
libtrain_la_SOURCES += \
	train/records/balance.c train/records/balance.h \
	train/records/clock.c train/records/clock.h \
	train/records/crc32c.c train/records/crc32c.h \
	train/records/events.c train/records/events.h \
	train/records/metrics.c train/records/metrics.h \
	train/records/records.c train/records/records.h \
	train/records/trace.c train/records/trace.h \
	train/records/trace_write.c \
	train/records/page/bars.c train/records/page/bars.h \
	train/records/page/chart.c train/records/page/chart.h \
	train/records/page/history.c train/records/page/history.h \
	train/records/page/host.c train/records/page/host.h \
	train/records/page/page.c train/records/page/page.h \
	train/records/page/page_style.c \
	train/records/page/page_tables.c train/records/page/page_tables.h \
	train/records/page/svg.c train/records/page/svg.h
