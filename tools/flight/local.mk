# SPDX-License-Identifier: BSD-3-Clause
# dist_info flight.
dist_info_SOURCES += \
	tools/flight.h \
	tools/flight.c
