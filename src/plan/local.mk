# SPDX-License-Identifier: BSD-3-Clause
# Plans: format, builder, checks.
libdist_core_sources += \
	src/plan/plan.c \
	src/plan/plan.h
