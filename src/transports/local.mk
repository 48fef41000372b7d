# SPDX-License-Identifier: BSD-3-Clause
# What the transports share; each has its own local.mk in its folder.
libdist_core_sources += \
	src/transports/match/announced.c \
	src/transports/match/announced.h \
	src/transports/match/credit.h \
	src/transports/match/match.c \
	src/transports/match/match.h \
	src/transports/match/standin.c \
	src/transports/match/standin.h
