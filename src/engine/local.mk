# SPDX-License-Identifier: BSD-3-Clause
# The plan engine.
libdist_core_sources += \
	src/engine/bind.c \
	src/engine/cache.c \
	src/engine/endpoint.c \
	src/engine/endpoint.h \
	src/engine/endpoint_state.h \
	src/engine/endpoint_watch.c \
	src/engine/engine.c \
	src/engine/engine.h \
	src/engine/envelope.c \
	src/engine/link.c \
	src/engine/mismatch.c \
	src/engine/mismatch.h \
	src/engine/on_node.c \
	src/engine/p2p.c \
	src/engine/p2p_message.c \
	src/engine/refining.c \
	src/engine/refining.h \
	src/engine/route.c \
	src/engine/route.h \
	src/engine/route_cards.c \
	src/engine/route_list.c \
	src/engine/state.h \
	src/engine/task.c \
	src/engine/task_life.c \
	src/engine/tune.c \
	src/engine/tune.h \
	src/engine/tune_cache.c \
	src/engine/tune_fit.c \
	src/engine/tune_links.c \
	src/engine/tune_local.c \
	src/engine/wait.c \
	src/engine/wait.h
