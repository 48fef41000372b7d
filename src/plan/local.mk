# SPDX-License-Identifier: BSD-3-Clause
# Plans: what they are, how they are built, what is wrong with one.
libdist_core_sources += \
	src/plan/plan.c \
	src/plan/plan.h
