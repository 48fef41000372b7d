# SPDX-License-Identifier: BSD-3-Clause
# The ground floor: statuses, log, settings, time, types and their arithmetic.
libdist_core_sources += \
	src/base/ascii.h \
	src/base/backoff.h \
	src/base/doorbell.c src/base/doorbell.h \
	src/base/checked.h \
	src/base/clock.c src/base/clock.h \
	src/base/collective.h \
	src/base/settings/config.c src/base/settings/config.h \
	src/base/process/end.c src/base/process/end.h \
	src/base/process/limit.c src/base/process/limit.h \
	src/base/process/oom.c src/base/process/oom.h \
	src/base/process/own.h \
	src/base/process/pages.c src/base/process/pages.h \
	src/base/process/reach.c src/base/process/reach.h \
	src/base/process/signal_name.c src/base/process/signal_name.h \
	src/base/process/space.c src/base/process/space.h \
	src/base/process/stat.c src/base/process/stat.h \
	src/base/process_lock.h \
	src/base/descriptor.c src/base/descriptor.h \
	src/base/dtype.c src/base/dtype.h \
	src/base/settings/env.c src/base/settings/env.h \
	src/base/faults/faults.c src/base/faults/faults.h \
	src/base/faults/parse.c \
	src/base/file.c src/base/file.h \
	src/base/file_name.c \
	src/base/host_name.c src/base/host_name.h \
	src/base/hash.h \
	src/base/thread.h \
	src/base/lock/lock.c src/base/lock/lock.h \
	src/base/kernels/crc32c.c src/base/kernels/crc32c.h \
	src/base/kernels/kernels.h \
	src/base/kernels/f16c.c \
	src/base/kernels/float.c \
	src/base/kernels/half.c \
	src/base/kernels/half.h \
	src/base/kernels/int.c \
	src/base/log.c src/base/log.h \
	src/base/proof/cookie.c \
	src/base/proof/handshake.c src/base/proof/handshake.h \
	src/base/proof/hmac.c src/base/proof/hmac.h \
	src/base/proof/secret.c src/base/proof/secret.h \
	src/base/kernels/environment.h \
	src/base/kernels/sink.c src/base/kernels/sink.h \
	src/base/status.c \
	src/base/tls/context.c src/base/tls/context.h \
	src/base/tls/library.c src/base/tls/library.h \
	src/base/tls/session.c \
	src/base/tls/tls.h \
	src/base/tls/wire.c src/base/tls/wire.h \
	src/base/tls/without.c \
	src/base/settings/variables.c src/base/settings/variables.h

# The kernels ask for -O3 and for clones by CPU themselves (kernels.h): no flags here.
