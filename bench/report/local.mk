# SPDX-License-Identifier: BSD-3-Clause
# Results: printed, saved, drawn, compared.
libbench_la_SOURCES += \
	bench/html.c \
	bench/print.c \
	bench/result.c bench/report.h

# Curves of what it has measured, as SVG.
noinst_PROGRAMS += bench/draw
bench_draw_SOURCES = bench/draw.c
bench_draw_LDADD = libbench.la libdist.la -lm
