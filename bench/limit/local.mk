# SPDX-License-Identifier: BSD-3-Clause
# The bound of this machine.
libbench_la_SOURCES += \
	 bench/limit.c
