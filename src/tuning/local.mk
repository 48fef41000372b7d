# SPDX-License-Identifier: BSD-3-Clause
# What a plan costs, and which one is chosen.
libdist_core_sources += \
	src/tuning/choose.c \
	src/tuning/choose.h \
	src/tuning/cost.h \
	src/tuning/select.c \
	src/tuning/select.h \
	src/tuning/terms.h \
	src/tuning/text.c \
	src/tuning/tuning.c \
	src/tuning/tuning.h
