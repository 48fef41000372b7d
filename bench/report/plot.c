/* SPDX-License-Identifier: BSD-3-Clause */
/* A plot as SVG. */
#include "plot.h"

#include "tools/common/markup.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* In the SVG's own units. */
#define WIDTH PLOT_WIDTH
#define HEIGHT PLOT_HEIGHT
#define LEFT 78
#define RIGHT 20
#define TOP 34
#define BOTTOM 56
#define STYLES 10
#define TICKS_MAX 12
#define TICK_WIDTH 54 /* of a size's name */

/* One colour each on a light and on a dark ground. */
static const char *const style_light[STYLES] = {"#0b62c4", "#c2410c", "#15803d", "#9d174d",
                                                "#6d28d9", "#a16207", "#0e7490", "#475569",
                                                "#be123c", "#4d7c0f"};
static const char *const style_dark[STYLES] = {"#6cb6ff", "#ff9d5c", "#5fd68a", "#f78fb9",
                                               "#b9a3ff", "#e5c454", "#5bd0e0", "#a9b8cc",
                                               "#ff8095", "#b6de6a"};

struct scale {
    bool logarithmic;
    double least, most; /* of the values */
    double from, to;    /* in units of the SVG */
};

struct canvas {
    FILE *to;
    const struct plot *plot;
    struct scale x, y;
};

static double scale_position(const struct scale *scale, double value)
{
    double least = scale->least, most = scale->most;

    if (scale->logarithmic) {
        value = log(value);
        least = log(least);
        most = log(most);
    }
    return scale->from + (value - least) / (most - least) * (scale->to - scale->from);
}

char *plot_bytes(double bytes, char text[24])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;

    while (unit < 4 && bytes >= 1024) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, 24, "%.4g %s", bytes, units[unit]);
    return text;
}

char *plot_time(double ns, char text[24])
{
    static const char *const units[] = {"ns", "µs", "ms", "s"};
    int unit = 0;

    while (unit < 3 && ns >= 999.5) {
        ns /= 1000;
        unit++;
    }
    snprintf(text, 24, "%.3g %s", ns, units[unit]);
    return text;
}

static char *plot_value(enum plot_kind kind, double value, char text[24])
{
    if (kind == PLOT_TIME)
        return plot_time(value, text);
    if (kind == PLOT_RATIO && value >= 100)
        snprintf(text, 24, "%.0f", value);
    else
        snprintf(text, 24, kind == PLOT_RATIO ? "%.3g" : "%.3g GB/s", value);
    return text;
}

/* ---- which values, which ticks ---- */

/* The range of all points that are there. */
static bool find_ranges(const struct plot *plot, struct scale *x, struct scale *y)
{
    x->least = y->least = INFINITY;
    x->most = y->most = 0;
    for (int s = 0; s < plot->series_count; s++) {
        const struct plot_series *series = &plot->series[s];

        for (int i = 0; i < series->count; i++) {
            if (series->y[i] <= 0)
                continue;
            x->least = fmin(x->least, series->x[i]);
            x->most = fmax(x->most, series->x[i]);
            y->least = fmin(y->least, series->y[i]);
            y->most = fmax(y->most, series->y[i]);
        }
    }
    if (x->least == x->most) { /* a single size stands in the middle */
        x->least /= 2;
        x->most *= 2;
    }
    return x->least > 0 && x->least < x->most;
}

/* The next of 1, 2, 5, 10, 20, ... that is not below value. */
static double round_up(double value)
{
    double power = pow(10, floor(log10(value)));

    for (double m = 1; m <= 10; m = m == 2 ? 5 : m * 2)
        if (m * power >= value * (1 - 1e-9))
            return m * power;
    return 10 * power;
}

/* Of 0, 1, 2, ... times a round step. */
static int linear_ticks(struct scale *y, double ticks[TICKS_MAX])
{
    double step = round_up(y->most / 6);
    int count = 0;

    y->least = 0;
    y->most = ceil(y->most / step * (1 - 1e-9)) * step;
    for (int i = 0; i < TICKS_MAX && i * step <= y->most * (1 + 1e-9); i++)
        ticks[count++] = i * step;
    return count;
}

/* Powers of two, 1 among them. */
static int ratio_ticks(struct scale *y, double ticks[TICKS_MAX])
{
    int first = (int)floor(log2(fmin(y->least, 0.99)) + 1e-9);
    int last = (int)ceil(log2(fmax(y->most, 1.01)) - 1e-9);
    int step = (last - first) / TICKS_MAX + 1, count = 0;

    y->least = ldexp(1, first);
    y->most = ldexp(1, last);
    for (int i = first; i <= last; i++) {
        if (i % step == 0)
            ticks[count++] = ldexp(1, i);
    }
    return count;
}

/* Decades; of less than two of them 1, 2, 5, 10, 20, ... */
static int time_ticks(struct scale *y, double ticks[TICKS_MAX])
{
    double tick;
    int count = 0;
    bool narrow;

    y->most = round_up(y->most * 1.01);
    y->least = 1 / round_up(1 / (y->least * 0.99));
    narrow = y->most < 100 * y->least;
    tick = narrow ? y->least : pow(10, ceil(log10(y->least) - 1e-9));
    for (; count < TICKS_MAX && tick <= y->most * (1 + 1e-9); count++) {
        ticks[count] = tick;
        tick = round_up(narrow ? tick * 1.01 : tick * 9.9);
    }
    return count;
}

/* Widens the range to round numbers and returns how many ticks it has. */
static int choose_ticks(enum plot_kind kind, struct scale *y, double ticks[TICKS_MAX])
{
    if (kind == PLOT_BANDWIDTH)
        return linear_ticks(y, ticks);
    return kind == PLOT_RATIO ? ratio_ticks(y, ticks) : time_ticks(y, ticks);
}

/* ---- drawing ---- */

/* The sizes that were measured, from the largest down, as far as their names have room. */
static void draw_x(struct canvas *canvas)
{
    const struct plot_series *series = &canvas->plot->series[0];
    double last = INFINITY;
    char text[24];

    for (int i = series->count - 1; i >= 0; i--) {
        double position = scale_position(&canvas->x, series->x[i]);

        if (series->x[i] < canvas->x.least || series->x[i] > canvas->x.most ||
            position > last - TICK_WIDTH)
            continue;
        last = position;
        fprintf(canvas->to,
                "<path class=\"grid\" d=\"M%.1f %dV%d\"/>"
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                position, TOP, HEIGHT - BOTTOM, position, HEIGHT - BOTTOM + 18,
                plot_bytes(series->x[i], text));
    }
    fprintf(canvas->to,
            "<text class=\"name\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">size (bytes)</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12);
}

/* Lines between the decades, where there is room for them. */
static void draw_minor(struct canvas *canvas)
{
    double least = canvas->y.least, most = canvas->y.most;

    if (canvas->plot->kind != PLOT_TIME || log10(most / least) > 5)
        return;
    for (double power = pow(10, floor(log10(least))); power < most; power *= 10) {
        for (int m = 2; m < 10; m++) {
            if (m * power > least && m * power < most * (1 - 1e-9))
                fprintf(canvas->to, "<path class=\"minor\" d=\"M%d %.1fH%d\"/>\n", LEFT,
                        scale_position(&canvas->y, m * power), WIDTH - RIGHT);
        }
    }
}

static void draw_y(struct canvas *canvas, const double *ticks, int count)
{
    static const char *const names[] = {"time of a call", "bus bandwidth (GB/s)", "relative time"};
    enum plot_kind kind = canvas->plot->kind;
    char text[24];

    draw_minor(canvas);
    for (int i = 0; i < count; i++) {
        double position = scale_position(&canvas->y, ticks[i]);
        bool one = kind == PLOT_RATIO && ticks[i] == 1;

        plot_value(kind, ticks[i], text);
        if (kind == PLOT_BANDWIDTH)
            text[strcspn(text, " ")] = '\0';
        else if (kind == PLOT_RATIO && ticks[i] < 1)
            snprintf(text, sizeof(text), "1/%.0f", 1 / ticks[i]);
        fprintf(canvas->to,
                "<path class=\"%s\" d=\"M%d %.1fH%d\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                one ? "one" : "grid", LEFT, position, WIDTH - RIGHT, LEFT - 8, position + 4, text);
    }
    fprintf(canvas->to,
            "<text class=\"name\" transform=\"translate(16 %d) rotate(-90)\" "
            "text-anchor=\"middle\">%s</text>\n",
            (TOP + HEIGHT - BOTTOM) / 2, names[kind]);
}

/* Circle, square, triangle, diamond, of some 3 units around 0, 0. */
static void draw_marker(FILE *to, int style, double x, double y)
{
    static const char *const shapes[] = {"m-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0 -7.2 0z",
                                         "m-3.2 -3.2h6.4v6.4h-6.4z", "m0 -4.4l4.2 7.4h-8.4z",
                                         "m0 -4.6l4.2 4.6l-4.2 4.6l-4.2 -4.6z"};

    fprintf(to, "<path class=\"f%d\" d=\"M%.1f %.1f%s\">", style % STYLES, x, y, shapes[style % 4]);
}

/* The line, broken where a value is missing; it carries the points' markers if it has few. */
static void draw_series(struct canvas *canvas, const struct plot_series *series)
{
    char x_text[24], y_text[24];
    bool down = false;

    fprintf(canvas->to, "<path class=\"line s%d%s\" d=\"", series->style % STYLES,
            series->dashed ? " bound" : "");
    for (int i = 0; i < series->count; i++) {
        if (series->y[i] > 0)
            fprintf(canvas->to, "%s%.1f %.1f", down ? "L" : "M",
                    scale_position(&canvas->x, series->x[i]),
                    scale_position(&canvas->y, series->y[i]));
        down = series->y[i] > 0;
    }
    fprintf(canvas->to, "\"/>\n");
    for (int i = 0; i < series->count; i++) {
        if (series->y[i] <= 0)
            continue;
        draw_marker(canvas->to, series->style, scale_position(&canvas->x, series->x[i]),
                    scale_position(&canvas->y, series->y[i]));
        fprintf(canvas->to, "<title>");
        markup_escape(series->name, canvas->to);
        fprintf(canvas->to, ", %s: %s</title></path>\n", plot_bytes(series->x[i], x_text),
                plot_value(canvas->plot->kind, series->y[i], y_text));
    }
}

bool plot_draw(const struct plot *plot, FILE *to)
{
    struct canvas canvas = {.to = to, .plot = plot};
    double ticks[TICKS_MAX + 2];
    int count;

    if (!find_ranges(plot, &canvas.x, &canvas.y))
        return false;
    canvas.x.logarithmic = true;
    canvas.x.from = LEFT + 8;
    canvas.x.to = WIDTH - RIGHT - 8;
    canvas.y.logarithmic = plot->kind != PLOT_BANDWIDTH;
    canvas.y.from = HEIGHT - BOTTOM;
    canvas.y.to = TOP;
    count = choose_ticks(plot->kind, &canvas.y, ticks);
    fprintf(to, "<text class=\"title\" x=\"%d\" y=\"18\">", LEFT);
    markup_escape(plot->title, to);
    fprintf(to, "</text>\n");
    draw_x(&canvas);
    draw_y(&canvas, ticks, count);
    fprintf(to, "<path class=\"frame\" d=\"M%d %dV%dH%d\"/>\n", LEFT, TOP, HEIGHT - BOTTOM,
            WIDTH - RIGHT);
    for (int s = plot->series_count; s-- > 0;) /* the first on top */
        draw_series(&canvas, &plot->series[s]);
    return true;
}

void plot_key(const struct plot_series *series, FILE *to)
{
    fprintf(to, "<path class=\"line s%d%s\" d=\"M1 7H33\"/>", series->style % STYLES,
            series->dashed ? " bound" : "");
    draw_marker(to, series->style, 17, 7);
    fprintf(to, "</path>");
}

static void style_colours(const char *const *colours, FILE *to)
{
    for (int s = 0; s < STYLES; s++)
        fprintf(to, ".s%d{stroke:%s}.f%d{fill:%s}\n", s, colours[s], s, colours[s]);
}

static void style_ground(const char *text, const char *faint, const char *grid, const char *ground,
                         FILE *to)
{
    fprintf(to,
            "svg text{fill:%s}svg .name{fill:%s}.grid,.minor{stroke:%s}.one{stroke:%s}"
            ".frame{stroke:%s}.ground{fill:%s}\n",
            text, faint, grid, text, faint, ground);
}

void plot_style(FILE *to)
{
    fprintf(to, "svg text{font:12.5px system-ui,sans-serif}"
                "svg .title{font-size:15px;font-weight:600}\n"
                "path{fill:none}.minor{opacity:.45}.one{stroke-width:1.4}\n"
                ".line{stroke-width:2;stroke-linejoin:round}.bound{stroke-dasharray:6 4}\n");
    style_ground("#1d2530", "#5b6675", "#d9dee5", "#fff", to);
    style_colours(style_light, to);
    fprintf(to, "@media(prefers-color-scheme:dark){\n");
    style_ground("#e4e8ee", "#a3adba", "#343c47", "#14181e", to);
    style_colours(style_dark, to);
    fprintf(to, "}\n");
}
