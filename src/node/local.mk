# SPDX-License-Identifier: BSD-3-Clause
# Operations of the ranks of one node in shared memory.
libdist_core_sources += \
	src/node/migrate.c \
	src/node/waking.c \
	src/node/mailbox.c \
	src/node/pages.c \
	src/node/node.h \
	src/node/op.c \
	src/node/irregular.c \
	src/node/copy.c \
	src/node/segment.c \
	src/node/segment.h \
	src/node/state.h
