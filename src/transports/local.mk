# SPDX-License-Identifier: BSD-3-Clause
# What the transports share; each has its own local.mk in its folder.
libdist_core_sources += \
	src/transports/announced.c \
	src/transports/announced.h \
	src/transports/credit.h \
	src/transports/match.c \
	src/transports/match.h \
	src/transports/standin.c \
	src/transports/standin.h
