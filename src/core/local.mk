# SPDX-License-Identifier: BSD-3-Clause
# Groups, works and the public entry points.
libdist_core_sources += \
	src/core/abort.c \
	src/core/agree.c \
	src/core/await.c \
	src/core/batch.c \
	src/core/blocks.c \
	src/core/blocks.h \
	src/core/calls.c \
	src/core/calls.h \
	src/core/calls_again.c \
	src/core/calls_move.c \
	src/core/calls_p2p.c \
	src/core/calls_reduce.c \
	src/core/calls_support.c \
	src/core/close.c \
	src/core/coalesced.c \
	src/core/drive.c \
	src/core/drive.h \
	src/core/fault.c \
	src/core/group.c \
	src/core/group.h \
	src/core/groups.c \
	src/core/handle.c \
	src/core/handle.h \
	src/core/kept.c \
	src/core/identity.c \
	src/core/init.c \
	src/core/leave.c \
	src/core/memory.c \
	src/core/monitor.c \
	src/core/news.c \
	src/core/op.c \
	src/core/op.h \
	src/core/persistent.c \
	src/core/progress.c \
	src/core/progress.h \
	src/core/progress_loop.c \
	src/core/settle.c \
	src/core/sleep.c \
	src/core/stage.c \
	src/core/stream.c \
	src/core/work.c \
	src/core/work.h \
	src/core/world.c \
	src/core/world.h
