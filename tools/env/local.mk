# SPDX-License-Identifier: BSD-3-Clause
# dist_info env.
dist_info_SOURCES += \
	tools/env/env.c \
	tools/env/env.h \
	tools/env/origin.c \
	tools/env/origin.h
