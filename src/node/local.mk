# SPDX-License-Identifier: BSD-3-Clause
# The floor of what the ranks of one machine do in memory that all of them see.
libdist_core_sources += \
	src/node/aside.c \
	src/node/bell.c \
	src/node/board.c \
	src/node/buddy.c \
	src/node/buddy.h \
	src/node/copy.c \
	src/node/given.c \
	src/node/move.c \
	src/node/node.h \
	src/node/op.c \
	src/node/pattern.c \
	src/node/reduce.c \
	src/node/segment.c \
	src/node/segment.h \
	src/node/segment_arena.c \
	src/node/segment_arena.h \
	src/node/segment_attach.c \
	src/node/segment_file.c \
	src/node/segment_file.h \
	src/node/segment_peer.c \
	src/node/segment_register.c \
	src/node/segment_table.c \
	src/node/segment_table.h \
	src/node/state.h \
	src/node/window.c
