# SPDX-License-Identifier: BSD-3-Clause
# dist_info flight.
dist_info_SOURCES += \
	tools/flight/command.c \
	tools/flight/flight.h \
	tools/flight/messages.c \
	tools/flight/read.c \
	tools/flight/say.c
