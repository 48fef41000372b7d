# SPDX-License-Identifier: BSD-3-Clause
# dist_info doctor.
dist_info_SOURCES += \
	tools/doctor/findings.c \
	tools/doctor/doctor.c \
	tools/doctor/doctor.h \
	tools/doctor/machine.c \
	tools/doctor/network.c
