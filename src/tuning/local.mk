# SPDX-License-Identifier: BSD-3-Clause
# Costs, and the selection of algorithms.
libdist_core_sources += \
	src/tuning/choose.c \
	src/tuning/choose.h \
	src/tuning/tuning.c \
	src/tuning/tuning.h
