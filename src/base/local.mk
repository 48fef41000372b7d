# SPDX-License-Identifier: BSD-3-Clause
# The base module: statuses, log, settings, time, types and their arithmetic.
libdist_core_sources += \
	src/base/ascii.h \
	src/base/backoff.h \
	src/base/checked.h \
	src/base/clock.c src/base/clock.h \
	src/base/collective.h src/base/collectives.def src/base/dtypes.def \
	src/base/settings/config.h \
	src/base/process.c src/base/process.h \
	src/base/descriptor.c src/base/descriptor.h \
	src/base/dtype.c src/base/dtype.h \
	src/base/settings/env.c src/base/settings/env.h \
	src/base/faults.h \
	src/base/faults.c \
	src/base/file.c src/base/file.h \
	src/base/net.c src/base/net.h \
	src/base/hash.h \
	src/base/thread.h \
	src/base/lock.c src/base/lock.h \
	src/base/crc32c.c src/base/kernels/crc32c.h \
	src/base/kernels/kernels.h \
	src/base/kernels/half.h \
	src/base/log.c src/base/log.h \
	src/base/auth.c \
	src/base/auth.h \
	src/base/kernels/environment.h \
	src/base/kernels/sink.h \
	src/base/status.c \
	src/base/tls.c src/base/tls/context.h src/base/tls/tls.h \
	src/base/settings/variables.c src/base/settings/variables.h src/base/settings/variables.def

# kernels.h sets -O3 and the CPU levels for the kernels, so they need no flags here.
