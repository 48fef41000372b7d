# SPDX-License-Identifier: BSD-3-Clause
# dist_info doctor.
dist_info_SOURCES += \
	tools/doctor/compare.c \
	tools/doctor/cpus.c \
	tools/doctor/doctor.c \
	tools/doctor/doctor.h \
	tools/doctor/gpu.c \
	tools/doctor/job.c \
	tools/doctor/launch.c \
	tools/doctor/limits.c \
	tools/doctor/memory.c \
	tools/doctor/network.c \
	tools/doctor/print.c \
	tools/doctor/report.c \
	tools/doctor/tls.c
