# SPDX-License-Identifier: BSD-3-Clause
# Machines, and the ranks on them: dist_info topology; train_mnist draws them too.
noinst_LTLIBRARIES += libtopology.la
libtopology_la_LIBTOOLFLAGS = $(static_only)
libtopology_la_CPPFLAGS = $(AM_CPPFLAGS) $(HWLOC_CFLAGS)
libtopology_la_SOURCES = \
	tools/topology/topology.c \
	tools/topology/topology.h
libtopology_la_LIBADD = $(HWLOC_LIBS)

dist_info_SOURCES += tools/topology/command.c
