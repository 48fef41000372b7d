# SPDX-License-Identifier: BSD-3-Clause
libdist_core_sources += \
	src/transports/faulty/faulty.c \
	src/transports/faulty/faulty.h
