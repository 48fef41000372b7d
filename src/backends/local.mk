# SPDX-License-Identifier: BSD-3-Clause
# The registry, the module loader and the built-in backends.
libdist_core_sources += \
	src/backends/explain.c \
	src/backends/faulty.c \
	src/backends/gloo.c \
	src/backends/module.c \
	src/backends/module.h \
	src/backends/planned.h \
	src/backends/mpi/abi.h \
	src/backends/mpi/flavour.c \
	src/backends/registry.c \
	src/backends/registry.h \
	src/backends/settings.c

mpi_module_sources += \
	src/base/clock.c src/base/clock.h \
	src/base/settings/env.c \
	src/base/settings/env.h \
	src/backends/mpi/mpi.c \
	src/backends/mpi/native.c \
	src/backends/mpi/native.h

# NCCL's ABI is declared in abi.h, and its library is loaded at run time.
nccl_module_sources = \
	src/backends/nccl/nccl.c \
	src/backends/nccl/nccl.h \
	src/backends/nccl/abi.h \
	src/backends/nccl/post.c \
	src/base/clock.c src/base/clock.h \
	src/base/settings/env.c \
	src/base/settings/env.h \
	src/device/driver.c \
	src/device/driver.h

ucx_module_sources += \
	src/backends/planned.h \
	src/backends/ucx.c \
	src/base/clock.c src/base/clock.h \
	src/base/settings/env.c src/base/settings/env.h
