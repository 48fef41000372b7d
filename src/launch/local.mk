# SPDX-License-Identifier: BSD-3-Clause
libdist_core_sources += \
	src/launch/agents/link.c src/launch/agents/link.h \
	src/launch/agents/message.c src/launch/agents/message.h \
	src/launch/spawn.c
