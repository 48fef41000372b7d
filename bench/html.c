/* SPDX-License-Identifier: BSD-3-Clause */
/* A plot as SVG. */
#include "bench/report.h"
#include "tools/common/text.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
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

/* Text for people: "64 KiB", "1.23 ms". Both return text. */
static char *plot_bytes(double bytes, char text[24])
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

static char *plot_time(double ns, char text[24])
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

/* A line with its marker, 34 wide and 14 high, for a legend. */
static void plot_key(const struct plot_series *series, FILE *to)
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

/* The rules that these need, inside of <style>. */
static void plot_style(FILE *to)
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

/* -1: no memory. curves_close in either case. */
/* The results taken apart for drawing. */

static int curves_open(const struct result *result, struct curves *curves)
{
    const size_t measurements = (size_t)result->measurement_count + 1,
                 libraries = (size_t)result->library_count + 1;

    *curves = (struct curves){.result = result,
                              .measurements = calloc(measurements, sizeof(*curves->measurements)),
                              .x = calloc(measurements, sizeof(double)),
                              .y = calloc(measurements * libraries, sizeof(double)),
                              .series = calloc(libraries, sizeof(*curves->series))};
    return curves->measurements && curves->x && curves->y && curves->series ? 0 : -1;
}

static void curves_close(struct curves *curves)
{
    free(curves->measurements);
    free(curves->x);
    free(curves->y);
    free(curves->series);
}

static bool curves_same(const struct result_measurement *a, const struct result_measurement *b)
{
    return strcmp(a->collective, b->collective) == 0 && strcmp(a->dtype, b->dtype) == 0 &&
           strcmp(a->op ? a->op : "", b->op ? b->op : "") == 0 && a->root == b->root &&
           a->in_place == b->in_place && a->apart == b->apart;
}

static int by_size(const void *a, const void *b)
{
    const struct result_measurement *x = *(const struct result_measurement *const *)a;
    const struct result_measurement *y = *(const struct result_measurement *const *)b;

    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* All measurements like the one at `first`, if that is the first of them. */
static int curves_gather(struct curves *curves, int first)
{
    const struct result *result = curves->result;
    const struct result_measurement *like = &result->measurements[first];

    curves->count = 0;
    for (int p = 0; p < first; p++)
        if (curves_same(&result->measurements[p], like))
            return 0;
    for (int p = first; p < result->measurement_count; p++)
        if (curves_same(&result->measurements[p], like))
            curves->measurements[curves->count++] = &result->measurements[p];
    qsort(curves->measurements, (size_t)curves->count, sizeof(curves->measurements[0]), by_size);
    for (int p = 0; p < curves->count; p++)
        curves->x[p] = (double)curves->measurements[p]->bytes;
    return curves->count;
}

/* Goes to the next collective, in the order of measuring; false: there is none. */
static bool curves_next(struct curves *curves)
{
    while (curves->next < curves->result->measurement_count) {
        if (curves_gather(curves, curves->next++) > 0)
            return true;
    }
    return false;
}

/* What all its measurements share: "float32 sum, root 0, in place". Returns text. */
static char *curves_what(const struct curves *curves, char text[128])
{
    const struct result_measurement *measurement = curves->measurements[0];
    char root[24] = "";

    if (measurement->root >= 0)
        snprintf(root, sizeof(root), ", root %d", measurement->root);
    snprintf(text, 128, "%s%s%s%s%s%s", measurement->dtype, measurement->op ? " " : "",
             measurement->op ? measurement->op : "", root,
             measurement->in_place ? ", in place" : "",
             measurement->apart ? ", timed as OSU's programs do" : "");
    return text;
}

static double curves_value(const struct curves *curves, enum plot_kind kind, int c, int p)
{
    const struct result_measurement *measurement = curves->measurements[p];
    const struct result_time *time = &measurement->times[c], *first = &measurement->times[0];

    if (!time->measured || measurement->bytes == 0)
        return 0;
    if (kind == PLOT_TIME)
        return time->median;
    if (kind == PLOT_BANDWIDTH)
        return result_bus_bandwidth(measurement, curves->result->ranks, time->median);
    return first->measured && first->median > 0 ? time->median / first->median : 0;
}

/* The plot of that kind, until the next call of these functions. */
static struct plot curves_plot(struct curves *curves, enum plot_kind kind)
{
    const char *first = curves->result->libraries[0].name;
    int libraries = curves->result->library_count;

    for (int c = 0; c < libraries; c++) {
        const struct result_library *one = &curves->result->libraries[c];
        double *y = curves->y + (size_t)c * (size_t)curves->count;

        for (int p = 0; p < curves->count; p++)
            y[p] = curves_value(curves, kind, c, p);
        curves->series[c] =
            (struct plot_series){one->name, c, one->limit, curves->x, y, curves->count};
    }
    if (kind == PLOT_RATIO)
        snprintf(curves->title, sizeof(curves->title),
                 "Time relative to %.24s (above 1: %.24s is faster)", first, first);
    else
        snprintf(curves->title, sizeof(curves->title), "%s",
                 kind == PLOT_TIME ? "Time" : "Bus bandwidth");
    return (struct plot){kind, curves->title, curves->series, libraries};
}

/* The picture: a legend on top, then a row of two plots for each collective. */

/* Of the head of a row, and of a name in the legend. */
#define ROW_HEAD 34
#define KEY_WIDTH_MIN 156
#define KEY_HEIGHT 22
#define KEY_LINE 56 /* the line of a key, and the gap after its name */
#define LETTER_WIDTH 7

/* Keys beside each other, as far as the longest name lets them. */
static int svg_keys_a_line(const struct result *result)
{
    int width = KEY_WIDTH_MIN, keys;

    for (int c = 0; c < result->library_count; c++) {
        int wanted = KEY_LINE + LETTER_WIDTH * (int)strlen(result->libraries[c].name);

        width = wanted > width ? wanted : width;
    }
    keys = 2 * PLOT_WIDTH / width;
    return keys > 1 ? keys : 1;
}

static int svg_legend_height(const struct result *result)
{
    int keys = svg_keys_a_line(result);

    return 12 + (result->library_count + keys - 1) / keys * KEY_HEIGHT;
}

static void svg_legend(const struct result *result, FILE *to)
{
    int keys = svg_keys_a_line(result), width = 2 * PLOT_WIDTH / keys;

    for (int c = 0; c < result->library_count; c++) {
        const struct result_library *one = &result->libraries[c];
        struct plot_series series = {.name = one->name, .style = c, .dashed = one->limit};

        fprintf(to, "<g transform=\"translate(%d %d)\">", 20 + c % keys * width,
                10 + c / keys * KEY_HEIGHT);
        plot_key(&series, to);
        fprintf(to, "<text x=\"40\" y=\"11\">");
        markup_escape(one->name, to);
        fprintf(to, "</text></g>\n");
    }
}

static void svg_plot(struct curves *curves, enum plot_kind kind, int x, int y, FILE *to)
{
    struct plot plot = curves_plot(curves, kind);

    fprintf(to, "<g transform=\"translate(%d %d)\">\n", x, y);
    plot_draw(&plot, to);
    fprintf(to, "</g>\n");
}

static void svg_row(struct curves *curves, int y, FILE *to)
{
    char what[128];

    fprintf(to, "<text class=\"title\" x=\"20\" y=\"%d\">%s, %s, %d rank%s</text>\n", y + 24,
            curves->measurements[0]->collective, curves_what(curves, what), curves->result->ranks,
            curves->result->ranks == 1 ? "" : "s");
    svg_plot(curves, PLOT_TIME, 0, y + ROW_HEAD, to);
    svg_plot(curves, curves->result->library_count > 1 ? PLOT_RATIO : PLOT_BANDWIDTH, PLOT_WIDTH,
             y + ROW_HEAD, to);
}

/* How many collectives there are; they are gone through again afterwards. */
static int svg_count(struct curves *curves)
{
    int count = 0;

    while (curves_next(curves))
        count++;
    curves->next = 0;
    return count;
}

static void svg_all(struct curves *curves, FILE *to)
{
    int y = svg_legend_height(curves->result);
    int height = y + svg_count(curves) * (ROW_HEAD + PLOT_HEIGHT);

    fprintf(to,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\">\n<style>\n",
            2 * PLOT_WIDTH, height, 2 * PLOT_WIDTH, height);
    plot_style(to);
    fprintf(to, "</style>\n<rect class=\"ground\" width=\"100%%\" height=\"100%%\"/>\n");
    svg_legend(curves->result, to);
    for (; curves_next(curves); y += ROW_HEAD + PLOT_HEIGHT)
        svg_row(curves, y, to);
    fprintf(to, "</svg>\n");
}

int svg_write(const struct result *result, FILE *to)
{
    struct curves curves;
    int status = -1;

    if (curves_open(result, &curves) == 0) {
        svg_all(&curves, to);
        status = fflush(to) == 0 && !ferror(to) ? 0 : -1;
    } else {
        errno = ENOMEM;
    }
    curves_close(&curves);
    return status;
}

/* The page: a head, then for each collective its curves and its table. */

static const char page_rules[] =
    ":root{color-scheme:light dark;--text:#1d2530;--faint:#5b6675;--grid:#d9dee5;--ground:#fff;"
    "--best:#e3f1e5}\n"
    "@media(prefers-color-scheme:dark){:root{--text:#e4e8ee;--faint:#a3adba;--grid:#343c47;"
    "--ground:#14181e;--best:#1d3a26}}\n"
    "body{background:var(--ground);color:var(--text);font:15px/1.5 system-ui,sans-serif;"
    "max-width:1500px;margin:2em auto;padding:0 1.2em}\n"
    "h1{font-size:1.5em;margin:0 0 .4em}h2{font-size:1.2em;margin:2em 0 .4em}\n"
    "code{font-size:.93em;overflow-wrap:anywhere}.faint{color:var(--faint)}\n"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.1em 1.2em;margin:.6em 0}\n"
    "dt{color:var(--faint)}dd{margin:0}ul.keys{list-style:none;padding:0;margin:.6em 0;"
    "display:flex;flex-wrap:wrap;gap:.2em 1.6em}\n"
    ".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,560px),1fr));"
    "gap:1em}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;margin:1em 0;"
    "font-variant-numeric:tabular-nums}\n"
    "svg{display:block;width:100%;height:auto}.key{display:inline-block;width:34px;height:14px;"
    "vertical-align:-2px}\n"
    "th,td{padding:.22em .8em;text-align:right;white-space:nowrap;"
    "border-bottom:1px solid var(--grid)}th{font-weight:600}td.best{background:var(--best)}\n";

/* ---- head ---- */

static void page_row(const char *name, const char *value, int code, FILE *to)
{
    if (!value || !*value)
        return;
    fprintf(to, "<dt>%s</dt><dd>%s", name, code ? "<code>" : "");
    markup_escape(value, to);
    fprintf(to, "%s</dd>\n", code ? "</code>" : "");
}

static void page_head(const struct result *result, FILE *to)
{
    char machine[512], how[128];

    snprintf(machine, sizeof(machine), "%s, %s%s%d CPUs that may be used", result->host,
             result->cpu, *result->cpu ? ", " : "", result->cpus);
    snprintf(how, sizeof(how), "medians of %d rounds in turns; a time is %s", result->rounds,
             result->measurement_count && result->measurements[0].apart
                 ? "the mean of the ranks', of calls timed one by one behind barriers"
                 : "the slowest rank's, of calls in a row");
    fprintf(to,
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
            "<meta name=\"viewport\" content=\"width=device-width\">\n"
            "<title>dist_bench, %d ranks</title>\n<style>\n%s",
            result->ranks, page_rules);
    plot_style(to);
    fprintf(to, "</style></head><body>\n<h1>dist_bench: %d rank%s</h1>\n<dl>\n", result->ranks,
            result->ranks == 1 ? "" : "s");
    page_row("Command", result->command, 1, to);
    page_row("Machine", machine, 0, to);
    page_row("System", result->system, 0, to);
    page_row("libdist", result->version, 0, to);
    page_row("Date", result->date, 0, to);
    page_row("Figures", how, 0, to);
    fprintf(to, "</dl>\n");
}

/* Each library with its line in the plots, its library, and why it went. */
static void page_legend(const struct result *result, FILE *to)
{
    fprintf(to, "<ul class=\"keys\">\n");
    for (int c = 0; c < result->library_count; c++) {
        const struct result_library *one = &result->libraries[c];
        struct plot_series series = {.name = one->name, .style = c, .dashed = one->limit};

        fprintf(to, "<li><svg class=\"key\" viewBox=\"0 0 34 14\">");
        plot_key(&series, to);
        fprintf(to, "</svg> ");
        markup_escape(one->name, to);
        fprintf(to, " <span class=\"faint\">");
        markup_escape(one->release, to);
        if (one->reason) {
            fprintf(to, " (left out: ");
            markup_escape(one->reason, to);
            fprintf(to, ")");
        }
        fprintf(to, "</span></li>\n");
    }
    fprintf(to, "</ul>\n");
}

/* ---- curves ---- */

static void page_plot(struct curves *curves, enum plot_kind kind, FILE *to)
{
    struct plot plot = curves_plot(curves, kind);

    fprintf(to, "<svg viewBox=\"0 0 %d %d\" role=\"img\">\n", PLOT_WIDTH, PLOT_HEIGHT);
    plot_draw(&plot, to);
    fprintf(to, "</svg>\n");
}

static void page_plots(struct curves *curves, FILE *to)
{
    fprintf(to, "<div class=\"plots\">\n");
    page_plot(curves, PLOT_TIME, to);
    page_plot(curves, PLOT_BANDWIDTH, to);
    if (curves->result->library_count > 1)
        page_plot(curves, PLOT_RATIO, to);
    fprintf(to, "</div>\n");
}

/* ---- table ---- */

/* The fastest, bounds aside; -1: none was measured. */
static int best_library(const struct result *result, const struct result_measurement *measurement)
{
    int best = -1;

    for (int c = 0; c < result->library_count; c++) {
        if (measurement->times[c].measured && !result->libraries[c].limit &&
            (best < 0 || measurement->times[c].median < measurement->times[best].median))
            best = c;
    }
    return best;
}

static void page_cell(const struct curves *curves, const struct result_measurement *measurement,
                      int c, FILE *to)
{
    const struct result_time *time = &measurement->times[c], *first = &measurement->times[0];
    char text[24];

    if (!time->measured) {
        fprintf(to, "<td class=\"faint\" title=\"");
        markup_escape(time->reason ? time->reason : "not measured", to);
        fprintf(to, "\">%s</td>", time->wrong ? "wrong" : "&ndash;");
        return;
    }
    fprintf(to, "<td%s title=\"bus bandwidth %.3g GB/s, rounds:",
            best_library(curves->result, measurement) == c ? " class=\"best\"" : "",
            result_bus_bandwidth(measurement, curves->result->ranks, time->median));
    for (int r = 0; r < time->round_count; r++)
        fprintf(to, " %s%s", plot_time(time->rounds[r], text),
                r + 1 < time->round_count ? "," : "");
    fprintf(to, "\">%s", plot_time(time->median, text));
    if (c > 0 && first->measured && first->median > 0)
        fprintf(to, " <span class=\"faint\">&times;%.3g</span>", time->median / first->median);
    fprintf(to, "</td>");
}

static void page_table(const struct curves *curves, FILE *to)
{
    const struct result *result = curves->result;
    char text[24];

    fprintf(to, "<div class=\"wide\"><table><thead><tr><th>size</th>");
    for (int c = 0; c < result->library_count; c++) {
        fprintf(to, "<th>");
        markup_escape(result->libraries[c].name, to);
        fprintf(to, "</th>");
    }
    fprintf(to, "</tr></thead><tbody>\n");
    for (int p = 0; p < curves->count; p++) {
        fprintf(to, "<tr><td>%s</td>", plot_bytes((double)curves->measurements[p]->bytes, text));
        for (int c = 0; c < result->library_count; c++)
            page_cell(curves, curves->measurements[p], c, to);
        fprintf(to, "</tr>\n");
    }
    fprintf(to,
            "</tbody></table></div>\n"
            "<p class=\"faint\">Time of a call, and that relative to the first library's "
            "(&times;). The fastest is marked. Point at a time for bus bandwidth and the medians "
            "of the rounds.</p>\n");
}

/* ---- all ---- */

static void page_collective(struct curves *curves, FILE *to)
{
    char what[128];

    fprintf(to, "<h2>%s <span class=\"faint\">%s</span></h2>\n",
            curves->measurements[0]->collective, curves_what(curves, what));
    page_legend(curves->result, to);
    page_plots(curves, to);
    page_table(curves, to);
}

int html_write(const struct result *result, FILE *to)
{
    struct curves curves;
    int status = -1;

    if (curves_open(result, &curves) == 0) {
        page_head(result, to);
        while (curves_next(&curves))
            page_collective(&curves, to);
        fprintf(to, "</body></html>\n");
        status = ferror(to) ? -1 : 0;
    } else {
        errno = ENOMEM;
    }
    curves_close(&curves);
    return status;
}
