# SPDX-License-Identifier: BSD-3-Clause
# distrun. It holds the store itself, so it links the library's insides.
noinst_LTLIBRARIES += librun.la
librun_la_LIBTOOLFLAGS = $(static_only)
librun_la_SOURCES = \
	src/launch/options/command.c \
	src/launch/options/counts.c \
	src/launch/options/options.c src/launch/options/options.h \
	src/launch/options/places.c \
	src/launch/options/secret.c \
	src/launch/options/words.c src/launch/options/words.h \
	src/launch/output/logs.c src/launch/output/logs.h \
	src/launch/output/output.c src/launch/output/output.h \
	src/launch/run/agent.c src/launch/run/agent.h \
	src/launch/run/error_file.c src/launch/run/error_file.h \
	src/launch/run/failure.c src/launch/run/failure.h \
	src/launch/run/guard.c src/launch/run/guard.h \
	src/launch/run/meeting.c \
	src/launch/run/round.c src/launch/run/round.h \
	src/launch/run/start.c \
	src/launch/run/starter.c src/launch/run/starter.h \
	src/launch/run/starter_begin.c \
	src/launch/run/starter_end.c \
	src/launch/run/watch.c \
	src/launch/workers/binding.c src/launch/workers/binding.h \
	src/launch/workers/environment.c src/launch/workers/environment.h \
	src/launch/workers/family.c src/launch/workers/family.h \
	src/launch/workers/workers.c src/launch/workers/workers.h
librun_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir) $(HWLOC_CFLAGS)
librun_la_LIBADD = libagents.la libcommon.la libdist_core.la

bin_PROGRAMS += distrun
distrun_SOURCES = src/launch/run/main.c
distrun_LDADD = librun.la
