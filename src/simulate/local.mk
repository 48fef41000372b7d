# SPDX-License-Identifier: BSD-3-Clause
# The simulator, which predicts the times of plans.
libdist_core_sources += \
	src/simulate/internal.h \
	src/simulate/simulate.c
