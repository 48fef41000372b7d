# SPDX-License-Identifier: BSD-3-Clause
libdist_core_sources += src/launch/spawn.c
