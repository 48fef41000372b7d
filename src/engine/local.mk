# SPDX-License-Identifier: BSD-3-Clause
# The plan engine.
libdist_core_sources += \
	src/engine/again.c \
	src/engine/bind.c \
	src/engine/cache.c \
	src/engine/engine.c \
	src/engine/engine.h \
	src/engine/envelope.c \
	src/engine/hint.c \
	src/engine/mismatch.c \
	src/engine/mismatch.h \
	src/engine/on_node.c \
	src/engine/p2p.c \
	src/engine/p2p_message.c \
	src/engine/routes/route.c \
	src/engine/routes/route.h \
	src/engine/routes/cards.c \
	src/engine/routes/files.c \
	src/engine/routes/list.c \
	src/engine/state.h \
	src/engine/task.c \
	src/engine/task_life.c \
	src/engine/measure/tune.c \
	src/engine/measure/tune.h \
	src/engine/measure/cache.c \
	src/engine/measure/fit.c \
	src/engine/measure/links.c \
	src/engine/measure/local.c \
	src/engine/wait.c \
	src/engine/wait.h
