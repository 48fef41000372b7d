# SPDX-License-Identifier: BSD-3-Clause
# The ground floor: statuses, log, settings, time, types and their arithmetic.
libdist_core_sources += \
	src/base/bell.c src/base/bell.h \
	src/base/checked.h \
	src/base/clock.c src/base/clock.h \
	src/base/config.c src/base/config.h \
	src/base/process_lock.h \
	src/base/descriptor.c src/base/descriptor.h \
	src/base/dtype.c src/base/dtype.h \
	src/base/env.c src/base/env.h \
	src/base/file.c src/base/file.h \
	src/base/hash.h \
	src/base/thread.h \
	src/base/kernels.h \
	src/base/kernels_f16c.c \
	src/base/kernels_float.c \
	src/base/kernels_half.c \
	src/base/kernels_int.c \
	src/base/log.c src/base/log.h \
	src/base/sink.c src/base/sink.h \
	src/base/status.c \
	src/base/variables.c src/base/variables.h

# The kernels ask for -O3 and for clones by CPU themselves (kernels.h): no flags here.
