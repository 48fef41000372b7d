# SPDX-License-Identifier: BSD-3-Clause
# What a plan costs, and which one is chosen.
libdist_core_sources += \
	src/tuning/choose.c \
	src/tuning/choose.h \
	src/tuning/tuning.c \
	src/tuning/tuning.h
