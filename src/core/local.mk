# SPDX-License-Identifier: BSD-3-Clause
# Groups, requests and the public entry points.
libdist_core_sources += \
	src/core/calls.c \
	src/core/call.h \
	src/core/progress.c \
	src/core/flight.h \
	src/core/flight.c \
	src/core/failure.c \
	src/core/group.c \
	src/core/groups.c \
	src/core/work.c \
	src/core/work.h \
	src/core/memory.c \
	src/core/public.c \
	src/core/stage.c \
	src/core/world.c \
	src/core/group.h
