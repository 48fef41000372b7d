# SPDX-License-Identifier: BSD-3-Clause
# Groups, works and the public entry points.
libdist_core_sources += \
	src/core/group/abort.c \
	src/core/group/agree.c \
	src/core/work/at_once.c \
	src/core/work/wait.c \
	src/core/work/batch.c \
	src/core/call/blocks.c \
	src/core/call/blocks.h \
	src/core/call/calls.c \
	src/core/call/calls.h \
	src/core/call/repeat.c \
	src/core/call/move.c \
	src/core/call/p2p.c \
	src/core/call/reduce.c \
	src/core/call/support.c \
	src/core/work/close.c \
	src/core/call/coalesced.c \
	src/core/work/drive.c \
	src/core/work/drive.h \
	src/core/group/fault.c \
	src/core/group/group.c \
	src/core/group/group.h \
	src/core/group/groups.c \
	src/core/work/handle.c \
	src/core/work/handle.h \
	src/core/group/known.c \
	src/core/group/identity.c \
	src/core/group/init.c \
	src/core/group/leave.c \
	src/core/call/memory.c \
	src/core/group/monitor.c \
	src/core/group/news.c \
	src/core/call/op.c \
	src/core/call/op.h \
	src/core/work/persistent.c \
	src/core/work/progress.c \
	src/core/work/progress.h \
	src/core/work/progress_loop.c \
	src/core/work/completion.c \
	src/core/work/sleep.c \
	src/core/work/stage.c \
	src/core/work/stream.c \
	src/core/work/work.c \
	src/core/work/work.h \
	src/core/group/world.c \
	src/core/group/world.h
