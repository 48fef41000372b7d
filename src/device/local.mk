# SPDX-License-Identifier: BSD-3-Clause
# Memory and streams of GPUs, through a driver that is found at run time. Modules may have it too.
libdist_core_sources += \
	src/device/driver.c \
	src/device/driver.h
mpi_module_sources += \
	src/device/driver.c \
	src/device/driver.h
