# SPDX-License-Identifier: BSD-3-Clause
# The verifier: proves that a plan does what its collective promises.
libdist_core_sources += \
	src/verify/internal.h \
	src/verify/race.c \
	src/verify/verify.c \
	src/verify/verify.h
