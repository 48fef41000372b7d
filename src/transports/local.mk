# SPDX-License-Identifier: BSD-3-Clause
# What the transports share; each has its own local.mk in its folder.
libdist_core_sources += \
	src/transports/match/match.c \
	src/transports/match/match.h
