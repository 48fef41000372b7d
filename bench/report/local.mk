# SPDX-License-Identifier: BSD-3-Clause
# Results: printed, saved, drawn, compared.
libbench_la_SOURCES += \
	bench/report/baseline.c bench/report/baseline.h \
	bench/report/csv.c bench/report/csv.h \
	bench/report/curves.c bench/report/curves.h \
	bench/report/html.c bench/report/html.h \
	bench/report/plot.c bench/report/plot.h \
	bench/report/print.c bench/report/print.h \
	bench/report/print_json.c \
	bench/report/print_table.c \
	bench/report/result.c bench/report/result.h \
	bench/report/svg.c bench/report/svg.h

# Curves of what it has measured, as SVG.
noinst_PROGRAMS += bench/draw
bench_draw_SOURCES = bench/report/draw.c
bench_draw_LDADD = libbench.la libdist.la -lm
