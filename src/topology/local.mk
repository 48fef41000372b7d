# SPDX-License-Identifier: BSD-3-Clause
# The topology of the ranks: model, rings, trees, discovery.
libdist_core_sources += \
	src/topology/discover.c \
	src/topology/discover.h \
	src/topology/topology.c \
	src/topology/topology.h \
	src/topology/trees.c
