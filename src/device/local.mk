# SPDX-License-Identifier: BSD-3-Clause
# GPU memory and streams, through a driver that is loaded at run time. Modules can use it, too.
libdist_core_sources += \
	src/device/driver.c \
	src/device/driver.h
mpi_module_sources += \
	src/device/driver.c \
	src/device/driver.h
