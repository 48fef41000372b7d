# SPDX-License-Identifier: BSD-3-Clause
# The registry, the module loader and the built-in backends.
libdist_core_sources += \
	src/backends/check.c \
	src/backends/explain.c \
	src/backends/folders.c \
	src/backends/gloo.c \
	src/backends/list.c \
	src/backends/module.c \
	src/backends/module.h \
	src/backends/module_file.c \
	src/backends/mpi/flavour.c \
	src/backends/query.c \
	src/backends/registry.c \
	src/backends/registry.h

mpi_module_sources += \
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
	src/backends/nccl.c \
	src/backends/nccl.h \
	src/backends/nccl_abi.h \
	src/backends/nccl_close.c \
	src/backends/nccl_compose.c \
	src/backends/nccl_device.c \
	src/backends/nccl_issue.c \
	src/backends/nccl_library.c \
	src/backends/nccl_memory.c \
	src/backends/nccl_open.c \
	src/backends/nccl_post.c \
	src/backends/nccl_progress.c \
	src/backends/nccl_self.c \
	src/backends/nccl_stage.c \
	src/backends/nccl_stage.h \
	src/backends/nccl_survey.c \
	src/base/settings/env.c \
	src/base/settings/env.h \
	src/device/driver.c \
	src/device/driver.h

ucx_module_sources += \
	src/backends/ucx.c \
	src/base/clock.c src/base/clock.h \
	src/base/settings/env.c src/base/settings/env.h
