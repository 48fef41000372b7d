# SPDX-License-Identifier: BSD-3-Clause
# dist_info topology.
dist_info_SOURCES += \
	tools/topology/command.c \
	tools/topology/gather.c \
	tools/topology/machine.c \
	tools/topology/svg.c \
	tools/topology/text.c \
	tools/topology/topology.h
dist_info_CPPFLAGS = $(AM_CPPFLAGS) $(HWLOC_CFLAGS)
dist_info_LDADD += $(HWLOC_LIBS)
