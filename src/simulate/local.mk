# SPDX-License-Identifier: BSD-3-Clause
# The simulator: how long a plan takes on machines as described.
libdist_core_sources += \
	src/simulate/internal.h \
	src/simulate/simulate.c
