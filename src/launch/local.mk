# SPDX-License-Identifier: BSD-3-Clause
libdist_core_sources += src/launch/spawn.c

# The meeting of distrun's agents, and the hosts that they are started on: of distrun alone.
noinst_LTLIBRARIES += libagents.la
libagents_la_LIBTOOLFLAGS = $(static_only)
libagents_la_SOURCES = \
	src/launch/agents/admission.c \
	src/launch/agents/agents.c src/launch/agents/agents.h \
	src/launch/agents/client.h \
	src/launch/agents/config.c \
	src/launch/agents/course.c \
	src/launch/agents/hear.c \
	src/launch/agents/link.c src/launch/agents/link.h \
	src/launch/agents/meeting.c \
	src/launch/agents/message.c src/launch/agents/message.h \
	src/launch/agents/reach.c \
	src/launch/agents/server.c src/launch/agents/server.h \
	src/launch/hosts.c src/launch/hosts.h \
	src/launch/hosts_start.c
