# SPDX-License-Identifier: BSD-3-Clause
# When who is measured: rounds, in turns.
libbench_la_SOURCES += \
	bench/rounds.c bench/rounds.h
