# SPDX-License-Identifier: BSD-3-Clause
# The floor of what the ranks of one machine do in memory that all of them see.
libdist_core_sources += \
	src/node/ahead.c \
	src/node/lead.c \
	src/node/migrate.c \
	src/node/waking/doorbell.c \
	src/node/moving/gait.c \
	src/node/moving/gait.h \
	src/node/board.c \
	src/node/board.h \
	src/node/segment/buddy.c \
	src/node/segment/buddy.h \
	src/node/cma.c \
	src/node/copy.c \
	src/node/deferred.c \
	src/node/moving/move.c \
	src/node/moving/mover.c \
	src/node/node.h \
	src/node/op.c \
	src/node/pairs/again.c \
	src/node/pairs/course.h \
	src/node/pairs/meet.c \
	src/node/pairs/pairs.h \
	src/node/pairs/rest.c \
	src/node/pairs/show.c \
	src/node/pairs/work.c \
	src/node/pattern.c \
	src/node/waking/presence.c \
	src/node/reduce.c \
	src/node/segment/segment.c \
	src/node/segment/segment.h \
	src/node/segment/arena.c \
	src/node/segment/arena.h \
	src/node/segment/ends.c \
	src/node/segment/file.c \
	src/node/segment/file.h \
	src/node/segment/peer.c \
	src/node/segment/register.c \
	src/node/segment/table.c \
	src/node/segment/table.h \
	src/node/area.h \
	src/node/short.h \
	src/node/start.c \
	src/node/waking/doorbell.h \
	src/node/state.h \
	src/node/view.c \
	src/node/window.c
