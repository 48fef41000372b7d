# SPDX-License-Identifier: BSD-3-Clause
# The floor that knows where the ranks are.
libdist_core_sources += \
	src/topology/cpus.c \
	src/topology/cpus.h \
	src/topology/crowd.c \
	src/topology/discover.c \
	src/topology/discover.h \
	src/topology/rings.c \
	src/topology/synthetic.c \
	src/topology/sysfs.c \
	src/topology/sysfs.h \
	src/topology/topology.c \
	src/topology/topology.h \
	src/topology/trees.c
