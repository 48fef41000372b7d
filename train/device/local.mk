# SPDX-License-Identifier: BSD-3-Clause
# Where a rank computes.
libtrain_la_SOURCES += \
	train/device/blas.c train/device/blas.h \
	train/device/device.c train/device/device.h \
	train/device/device_cpu.c \
	train/device/device_cuda.c train/device/device_cuda.h
