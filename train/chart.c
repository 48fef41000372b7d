/* SPDX-License-Identifier: BSD-3-Clause */
/* The pictures of the page. */
#include "chart.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/text.h"

/* ---- text, numbers, ticks ---- */

/* A text of that class, where `anchor` is "start", "middle" or "end". */
static void svg_text(double x, double y, const char *anchor, const char *class, const char *text,
                     FILE *to)
{
    fprintf(to, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">", x, y, anchor,
            class);
    markup_escape(text, to);
    fputs("</text>\n", to);
}

static void svg_line(double x1, double y1, double x2, double y2, const char *class, FILE *to)
{
    fprintf(to, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", x1, y1,
            x2, y2, class);
}

double svg_tick(double least, double most, int wanted)
{
    const double rough = (most - least) / wanted;
    double power, rest;

    if (!(rough > 0) || !isfinite(rough))
        return 1;
    power = pow(10, floor(log10(rough)));
    rest = rough / power;
    return power * (rest < 1.5 ? 1 : rest < 3.5 ? 2 : rest < 7.5 ? 5 : 10);
}

void svg_number(double value, double tick, char text[SVG_NUMBER])
{
    const double size = fmax(fabs(value), tick);
    const double unit = size >= 1e9 ? 1e9 : size >= 1e6 ? 1e6 : size >= 1e4 ? 1e3 : 1;
    const char *name = unit == 1e9 ? "G" : unit == 1e6 ? "M" : unit == 1e3 ? "k" : "";
    const int digits = (int)ceil(-log10(tick / unit) - 1e-9);

    if (fabs(value) < tick * 1e-6)
        snprintf(text, SVG_NUMBER, "0");
    else if (digits > 6)
        snprintf(text, SVG_NUMBER, "%.3g", value);
    else
        snprintf(text, SVG_NUMBER, "%.*f%s", digits > 0 ? digits : 0, value / unit, name);
}

/* ---- a value over the steps of a run ---- */

/* The mean of a bin's finite points; NaN: it has none. */
static double history_mean(const struct history_bin *bin)
{
    return bin->finite ? bin->sum / (double)bin->finite : (double)NAN;
}

static void history_merge(struct history_bin *into, const struct history_bin *from)
{
    if (from->finite) {
        into->least = into->finite ? fmin(into->least, from->least) : from->least;
        into->most = into->finite ? fmax(into->most, from->most) : from->most;
    }
    into->last = from->last;
    into->sum += from->sum;
    into->finite += from->finite;
    into->bad += from->bad;
}

static void history_halve(struct history *history)
{
    for (int i = 0; i < HISTORY_ROOM / 2; i++) {
        history->bins[i] = history->bins[2 * i];
        history_merge(&history->bins[i], &history->bins[2 * i + 1]);
    }
    history->count = HISTORY_ROOM / 2;
    history->stride *= 2;
}

void history_add(struct history *history, double x, double y)
{
    const struct history_bin point = isfinite(y) ? (struct history_bin){x, x, y, y, y, 1, 0}
                                                 : (struct history_bin){x, x, 0, 0, 0, 0, 1};
    struct history_bin *last = history->bins + history->count - 1;

    if (history->stride == 0)
        history->stride = 1;
    if (history->count > 0 && last->finite + last->bad < history->stride) {
        history_merge(last, &point);
        return;
    }
    if (history->count == HISTORY_ROOM)
        history_halve(history);
    history->bins[history->count++] = point;
}

/* ---- a picture of values over the steps ---- */

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

/* ---- where the time of a step goes ---- */

enum { BARS_W = 1000, BARS_LEFT = 76, BARS_RIGHT = 20, BARS_AXIS = 44 };

static const struct {
    const char *name, *class;
} bars_parts[BALANCE_PARTS] = {
    [BALANCE_FORWARD] = {"forward", "forward"},
    [BALANCE_BACKWARD] = {"backward", "backward"},
    [BALANCE_UPDATE] = {"update", "update"},
    [BALANCE_DATA] = {"data", "data"},
    [BALANCE_COMMUNICATION] = {"exposed communication", "communication"},
    [BALANCE_WAITING] = {"waiting for the slowest", "waiting"},
    [BALANCE_OTHER] = {"other", "other"},
};

const char *bars_name(enum balance_part part)
{
    return bars_parts[part].name;
}

const char *bars_class(enum balance_part part)
{
    return bars_parts[part].class;
}

double bars_total(const struct balance_rank *rank)
{
    double sum = 0;

    for (int i = 0; i < BALANCE_PARTS; i++)
        sum += rank->seconds[i];
    return rank->steps > 0 ? sum / rank->steps : 0;
}

double bars_work(const struct balance_rank *rank)
{
    const double not_own = rank->seconds[BALANCE_WAITING] + rank->seconds[BALANCE_COMMUNICATION];

    return rank->steps > 0 ? bars_total(rank) - not_own / rank->steps : 0;
}

struct balance_rank bars_sum(const struct balance *balance)
{
    struct balance_rank sum = {.steps = 0};

    for (int rank = 0; rank < balance->world; rank++) {
        for (int i = 0; i < BALANCE_PARTS; i++)
            sum.seconds[i] += balance->ranks[rank].seconds[i];
        sum.steps += balance->ranks[rank].steps;
    }
    return sum;
}

static double bars_x(double seconds, double most)
{
    return BARS_LEFT + (most > 0 ? seconds / most : 0) * (BARS_W - BARS_LEFT - BARS_RIGHT);
}

static void bars_begin(double height, const char *title, FILE *to)
{
    fprintf(to, "<svg viewBox=\"0 0 %d %.0f\" role=\"img\" aria-label=\"%s\">\n", BARS_W,
            height + BARS_AXIS, title);
}

/* In milliseconds, below the bars, with lines up to the top. */
static void bars_axis(double most, double height, FILE *to)
{
    const double tick = svg_tick(0, most * 1e3, 8);
    char text[SVG_NUMBER];

    for (double x = 0; x <= most * 1e3 * (1 + 1e-9); x += tick) {
        const double at = bars_x(x / 1e3, most);

        svg_line(at, 0, at, height + 5, "grid", to);
        svg_number(x, tick, text);
        svg_text(at, height + 19, "middle", "tick", text, to);
    }
    svg_line(BARS_LEFT, height, BARS_W - BARS_RIGHT, height, "axis", to);
    svg_text((BARS_LEFT + BARS_W - BARS_RIGHT) / 2.0, height + 38, "middle", "label",
             "milliseconds a step", to);
}

static void bars_draw(const struct balance_rank *rank, const char *label, double most, double y,
                      double height, FILE *to)
{
    double done = 0;

    if (height >= 9)
        svg_text(BARS_LEFT - 9, y + height / 2 + (height < 12 ? 3.5 : 4), "end",
                 height < 12 ? "small" : "tick", label, to);
    for (int i = 0; i < BALANCE_PARTS && rank->steps > 0; i++) {
        const double part = rank->seconds[i] / rank->steps;

        if (part > 0)
            fprintf(to,
                    "<rect class=\"%s\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\">"
                    "<title>%s, %s: %.3f ms</title></rect>\n",
                    bars_parts[i].class, bars_x(done, most), y, bars_x(part, most) - BARS_LEFT,
                    height, label, bars_parts[i].name, part * 1e3);
        done += part;
    }
}

/* Most, rounded up to a tick of the axis. */
static double bars_most(double most)
{
    const double tick = svg_tick(0, most * 1e3, 8);

    return most > 0 ? ceil(most * 1e3 / tick - 1e-9) * tick / 1e3 : 1e-3;
}

void bars_mean(const struct balance *balance, FILE *to)
{
    const struct balance_rank sum = bars_sum(balance);
    const double most = bars_most(bars_total(&sum));

    bars_begin(44, "where the time of a step goes, mean of the ranks", to);
    bars_axis(most, 44, to);
    bars_draw(&sum, balance->world == 1 ? "rank 0" : "mean", most, 4, 36, to);
    fputs("</svg>\n", to);
}

/* Whose own work takes longest comes first. */
static const struct balance *bars_sorted;
static int bars_compare(const void *a, const void *b)
{
    const double left = bars_work(&bars_sorted->ranks[*(const int *)a]);
    const double right = bars_work(&bars_sorted->ranks[*(const int *)b]);

    return left < right ? 1 : left > right ? -1 : 0;
}

static void bars_rows(const struct balance *balance, const int *ranks, int count, double pitch,
                      FILE *to)
{
    const double height = count * pitch;
    double most = 0;
    char label[32];

    for (int i = 0; i < count; i++)
        most = fmax(most, bars_total(&balance->ranks[ranks[i]]));
    most = bars_most(most);
    bars_begin(height, "where the time of a step goes, rank by rank", to);
    bars_axis(most, height, to);
    for (int i = 0; i < count; i++) {
        snprintf(label, sizeof(label), "rank %d", ranks[i]);
        bars_draw(&balance->ranks[ranks[i]], label, most, i * pitch + pitch * 0.1, pitch * 0.8, to);
    }
    fputs("</svg>\n", to);
}

void bars_ranks(const struct balance *balance, FILE *to)
{
    const int count = balance->world < BARS_MOST ? balance->world : BARS_MOST;
    int *ranks = calloc((size_t)balance->world, sizeof(*ranks));

    if (!ranks)
        return;
    for (int i = 0; i < balance->world; i++)
        ranks[i] = i;
    bars_sorted = balance;
    if (count < balance->world)
        qsort(ranks, (size_t)balance->world, sizeof(*ranks), bars_compare);
    bars_rows(balance, ranks, count, count <= 8 ? 30 : count <= 32 ? 20 : 13, to);
    free(ranks);
}
