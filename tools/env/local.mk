# SPDX-License-Identifier: BSD-3-Clause
# dist_info env.
dist_info_SOURCES += \
	tools/env.h \
	tools/env.c
