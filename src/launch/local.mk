# SPDX-License-Identifier: BSD-3-Clause
libdist_core_sources += src/launch/spawn.c

# The rendezvous of distrun's agents, and their hosts. Used by distrun only.
noinst_LTLIBRARIES += libagents.la librun.la
libagents_la_LIBTOOLFLAGS = $(static_only)
libagents_la_SOURCES = \
	src/launch/agents/agents.c src/launch/agents/agents.h \
	src/launch/agents/message.c src/launch/agents/message.h \
	src/launch/agents/server.c src/launch/agents/server.h \
	src/launch/hosts.c src/launch/hosts.h

# distrun. It links internal libraries, since it runs the store.
librun_la_LIBTOOLFLAGS = $(static_only)
librun_la_SOURCES = \
	src/launch/agent.c src/launch/agent.h \
	src/launch/failure.c src/launch/failure.h \
	src/launch/options.c src/launch/options.h \
	src/launch/output.c src/launch/output.h \
	src/launch/starter.c \
	src/launch/words.c src/launch/words.h \
	src/launch/workers.c src/launch/workers.h
librun_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir) $(HWLOC_CFLAGS)
librun_la_LIBADD = libagents.la libcommon.la libdist_core.la

bin_PROGRAMS += distrun
distrun_SOURCES = src/launch/main.c
distrun_LDADD = librun.la
