# SPDX-License-Identifier: BSD-3-Clause
# The plan engine.
libdist_core_sources += \
	src/engine/engine.c \
	src/engine/engine.h \
	src/engine/hint.c \
	src/engine/mismatch.c \
	src/engine/p2p.c \
	src/engine/routes.c \
	src/engine/state.h \
	src/engine/tune.c \
	src/engine/wait.c
