/* SPDX-License-Identifier: BSD-3-Clause */
/* A picture of values over the steps. */
#include "chart.h"

#include <inttypes.h>
#include <math.h>

#include "svg.h"

/* In the picture's own units; it is as wide as the page lets it. */
enum { CHART_W = 640, CHART_H = 290, CHART_LEFT = 66, CHART_RIGHT = 18, CHART_TOP = 14 };
enum { CHART_BOTTOM = 46, CHART_POINTS_MOST = 60 };

/* What the axes show. */
struct chart_frame {
    const struct chart *chart;
    double x0, x1, y0, y1;
    double x_tick, y_tick;
    bool empty; /* there is no finite value */
};

static double chart_x(const struct chart_frame *frame, double x)
{
    return CHART_LEFT +
           (x - frame->x0) / (frame->x1 - frame->x0) * (CHART_W - CHART_LEFT - CHART_RIGHT);
}

/* What is shown of a value. */
static double chart_value(const struct chart *chart, double value)
{
    return (chart->inverse ? 1 / value : value) * chart->scale;
}

static double chart_at(const struct chart_frame *frame, double shown)
{
    const double part = (shown - frame->y0) / (frame->y1 - frame->y0);

    return CHART_H - CHART_BOTTOM - part * (CHART_H - CHART_BOTTOM - CHART_TOP);
}

static double chart_y(const struct chart_frame *frame, double value)
{
    return chart_at(frame, chart_value(frame->chart, value));
}

static double chart_middle(const struct history_bin *bin)
{
    return (bin->first + bin->last) / 2;
}

static void chart_measure_steps(struct chart_frame *frame, const struct history *history)
{
    if (history->count == 0)
        return;
    frame->x0 = fmin(frame->x0, history->bins[0].first);
    frame->x1 = fmax(frame->x1, history->bins[history->count - 1].last);
}

/* What a series reaches. */
static void chart_measure(struct chart_frame *frame, const struct history *history)
{
    chart_measure_steps(frame, history);
    for (int i = 0; i < history->count; i++) {
        const struct history_bin *bin = &history->bins[i];
        double least, most;

        if (!bin->finite)
            continue;
        least = chart_value(frame->chart, bin->least);
        most = chart_value(frame->chart, bin->most);
        frame->y0 = fmin(frame->y0, fmin(least, most));
        frame->y1 = fmax(frame->y1, fmax(least, most));
        frame->empty = false;
    }
}

/* Axes that end at ticks, and are not empty. */
static void chart_round(struct chart_frame *frame)
{
    const struct chart *chart = frame->chart;

    if (frame->empty)
        frame->y0 = 0, frame->y1 = 1;
    if (chart->from_zero && frame->y0 > 0)
        frame->y0 = 0;
    if (frame->y1 - frame->y0 < fabs(frame->y1) * 1e-9 || frame->y1 == frame->y0) {
        const double around = frame->y1 != 0 ? fabs(frame->y1) / 10 : 1;

        frame->y0 -= chart->from_zero ? 0 : around;
        frame->y1 += around;
    }
    frame->y_tick = svg_tick(frame->y0, frame->y1, 5);
    frame->y0 = floor(frame->y0 / frame->y_tick + 1e-9) * frame->y_tick;
    frame->y1 = ceil(frame->y1 / frame->y_tick - 1e-9) * frame->y_tick;
    if (chart->ceiling > 0)
        frame->y1 = fmin(frame->y1, chart->ceiling);
    if (frame->x1 <= frame->x0)
        frame->x0 -= frame->x0 >= 1 ? 1 : 0, frame->x1 = frame->x0 + 2;
    frame->x_tick = fmax(1, svg_tick(frame->x0, frame->x1, 7));
}

static struct chart_frame chart_frame(const struct chart *chart)
{
    struct chart_frame frame = {.chart = chart, .empty = true};

    frame.x0 = frame.y0 = INFINITY;
    frame.x1 = frame.y1 = -INFINITY;
    for (int i = 0; i < chart->series_count; i++)
        chart_measure(&frame, chart->series[i].history);
    if (chart->steps)
        chart_measure_steps(&frame, chart->steps);
    if (!isfinite(frame.x0))
        frame.x0 = frame.x1 = 0;
    chart_round(&frame);
    return frame;
}

static void chart_axes(const struct chart_frame *frame, FILE *to)
{
    const double below = CHART_H - CHART_BOTTOM, right = CHART_W - CHART_RIGHT;
    char text[SVG_NUMBER];

    for (double y = frame->y0; y <= frame->y1 + frame->y_tick * 1e-6; y += frame->y_tick) {
        const double at = chart_at(frame, y);

        svg_line(CHART_LEFT, at, right, at, "grid", to);
        svg_number(y, frame->y_tick, text);
        svg_text(CHART_LEFT - 9, at + 4, "end", "tick", text, to);
    }
    svg_line(CHART_LEFT, below, right, below, "axis", to);
    for (double x = ceil(frame->x0 / frame->x_tick - 1e-9) * frame->x_tick;
         x <= frame->x1 + frame->x_tick * 1e-6; x += frame->x_tick) {
        svg_line(chart_x(frame, x), below, chart_x(frame, x), below + 5, "axis", to);
        svg_number(x, frame->x_tick, text);
        svg_text(chart_x(frame, x), below + 19, "middle", "tick", text, to);
    }
    svg_text((CHART_LEFT + right) / 2, CHART_H - 6, "middle", "label", frame->chart->x, to);
    fprintf(to, "<g transform=\"translate(14,%.1f) rotate(-90)\">", (CHART_TOP + below) / 2);
    svg_text(0, 0, "middle", "label", frame->chart->y, to);
    fputs("</g>\n", to);
}

/* The smallest and largest of the bins from `from` up to `to`, which have values, as one shape. */
static void chart_band(const struct chart_frame *frame, const struct chart_series *series, int from,
                       int end, FILE *to)
{
    const struct history_bin *bins = series->history->bins;

    fprintf(to, "<polygon class=\"%s-band\" points=\"", series->class);
    for (int i = from; i < end; i++)
        fprintf(to, "%.1f,%.1f ", chart_x(frame, chart_middle(&bins[i])),
                chart_y(frame, bins[i].most));
    for (int i = end - 1; i >= from; i--)
        fprintf(to, "%.1f,%.1f ", chart_x(frame, chart_middle(&bins[i])),
                chart_y(frame, bins[i].least));
    fputs("\"/>\n", to);
}

/* A piece of the line without a gap. A single value is a point. */
static void chart_piece(const struct chart_frame *frame, const struct chart_series *series,
                        int from, int end, FILE *to)
{
    const struct history_bin *bins = series->history->bins;

    if (series->history->stride > 1)
        chart_band(frame, series, from, end, to);
    if (end - from == 1)
        fprintf(to, "<circle class=\"%s-dot\" r=\"3\" cx=\"%.1f\" cy=\"%.1f\"/>\n", series->class,
                chart_x(frame, chart_middle(&bins[from])),
                chart_y(frame, history_mean(&bins[from])));
    fprintf(to, "<polyline class=\"%s\" points=\"", series->class);
    for (int i = from; i < end; i++)
        fprintf(to, "%.1f,%.1f ", chart_x(frame, chart_middle(&bins[i])),
                chart_y(frame, history_mean(&bins[i])));
    fputs("\"/>\n", to);
}

/* Each value, to rest the mouse on. */
static void chart_points(const struct chart_frame *frame, const struct chart_series *series,
                         FILE *to)
{
    const struct history *history = series->history;

    for (int i = 0; i < history->count; i++) {
        const struct history_bin *bin = &history->bins[i];

        if (!bin->finite)
            continue;
        fprintf(to, "<circle class=\"%s-dot\" r=\"4\" cx=\"%.1f\" cy=\"%.1f\"><title>%s: %.6g, ",
                series->class, chart_x(frame, chart_middle(bin)), chart_y(frame, history_mean(bin)),
                series->name, chart_value(frame->chart, history_mean(bin)));
        fprintf(to, "step %.0f</title></circle>\n", chart_middle(bin));
    }
}

/* A column behind bins [from, end), whose values are not all finite. */
static void chart_bad(const struct chart_frame *frame, const struct chart_series *series, int from,
                      int end, FILE *to)
{
    const struct history_bin *bins = series->history->bins;
    const double x = chart_x(frame, bins[from].first), right = chart_x(frame, bins[end - 1].last);
    int64_t bad = 0;

    for (int i = from; i < end; i++)
        bad += bins[i].bad;
    fprintf(to,
            "<rect class=\"bad\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"><title>%s: "
            "%" PRId64 " not finite, steps %.0f to %.0f</title></rect>\n",
            x - 1.5, CHART_TOP, right - x + 3, CHART_H - CHART_BOTTOM - CHART_TOP, series->name,
            bad, bins[from].first, bins[end - 1].last);
}

/* Draws each run of bins that have numbers that are not finite, or that have finite ones. */
static void chart_runs(const struct chart_frame *frame, const struct chart_series *series, bool bad,
                       FILE *to)
{
    const struct history *history = series->history;
    int from = 0;

    for (int i = 0; i <= history->count; i++) {
        if (i < history->count && (bad ? history->bins[i].bad : history->bins[i].finite) > 0)
            continue;
        if (i > from && bad)
            chart_bad(frame, series, from, i, to);
        else if (i > from)
            chart_piece(frame, series, from, i, to);
        from = i + 1;
    }
}

static void chart_series_draw(const struct chart_frame *frame, const struct chart_series *series,
                              FILE *to)
{
    chart_runs(frame, series, true, to);
    chart_runs(frame, series, false, to);
    if (series->points && series->history->count <= CHART_POINTS_MOST)
        chart_points(frame, series, to);
}

void chart_draw(const struct chart *chart, FILE *to)
{
    const struct chart_frame frame = chart_frame(chart);

    fprintf(to, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", CHART_W, CHART_H,
            chart->title);
    chart_axes(&frame, to);
    for (int i = 0; i < chart->series_count; i++)
        chart_series_draw(&frame, &chart->series[i], to);
    if (frame.empty)
        svg_text((CHART_LEFT + CHART_W - CHART_RIGHT) / 2.0, (CHART_H - CHART_BOTTOM) / 2.0,
                 "middle", "none", "no values", to);
    fputs("</svg>\n", to);
}
