# SPDX-License-Identifier: BSD-3-Clause
# The registry, the module loader and the built-in backends.
libdist_core_sources += \
	src/backends/explain.c \
	src/backends/gloo.c \
	src/backends/module.c \
	src/backends/mpi_flavour.c \
	src/backends/query.c \
	src/backends/registry.c \
	src/backends/registry.h

mpi_module_sources += \
	src/backends/mpi.c \
	src/backends/mpi_device.c \
	src/backends/mpi_native.c \
	src/backends/mpi_native.h \
	src/backends/mpi_native_start.c \
	src/backends/mpi_native_takes.c \
	src/backends/mpi_native_v.c
