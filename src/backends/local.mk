# SPDX-License-Identifier: BSD-3-Clause
# The registry, the module loader and the built-in backends.
libdist_core_sources += \
	src/backends/apart.c \
	src/backends/check.c \
	src/backends/explain.c \
	src/backends/faulty.c \
	src/backends/folders.c \
	src/backends/gloo.c \
	src/backends/list.c \
	src/backends/module.c \
	src/backends/module.h \
	src/backends/module_file.c \
	src/backends/module_place.c \
	src/backends/planned.h \
	src/backends/mpi/abi.h \
	src/backends/mpi/flavour.c \
	src/backends/query.c \
	src/backends/registry.c \
	src/backends/registry.h \
	src/backends/settings.c

mpi_module_sources += \
	src/base/clock.c src/base/clock.h \
	src/base/settings/env.c \
	src/base/settings/env.h \
	src/backends/mpi/mpi.c \
	src/backends/mpi/device.c \
	src/backends/mpi/end.c \
	src/backends/mpi/end.h \
	src/backends/mpi/native.c \
	src/backends/mpi/native.h \
	src/backends/mpi/native_start.c \
	src/backends/mpi/native_takes.c \
	src/backends/mpi/native_v.c

# NCCL's ABI is declared here, and its library loaded at run time.
nccl_module_sources = \
	src/backends/nccl/nccl.c \
	src/backends/nccl/nccl.h \
	src/backends/nccl/abi.h \
	src/backends/nccl/close.c \
	src/backends/nccl/compose.c \
	src/backends/nccl/device.c \
	src/backends/nccl/issue.c \
	src/backends/nccl/library.c \
	src/backends/nccl/memory.c \
	src/backends/nccl/open.c \
	src/backends/nccl/post.c \
	src/backends/nccl/progress.c \
	src/backends/nccl/self.c \
	src/backends/nccl/stage.c \
	src/backends/nccl/stage.h \
	src/backends/nccl/survey.c \
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
