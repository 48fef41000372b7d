/* SPDX-License-Identifier: BSD-3-Clause */
/* Plots, pictures and pages as SVG and HTML. */
#include "plot.h"
#include "text.h"

#include <math.h>
#include <string.h>

#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))

/* Margins of a plot, in the units of the SVG. */
enum { LEFT = 86, RIGHT = 24, TOP = 34, BOTTOM = 56, INSET = 8 /* between frame and curves */ };

#define TICK_WIDTH 62 /* width of a label of the x axis */
#define CURVE_TICKS 12

/* ---- colours and style rules ---- */

static const char *const inks[PLOT_INKS][2] = {
    {"#0b62c4", "#6cb6ff"},
    {"#c2410c", "#ff9d5c"},
    {"#15803d", "#5fd68a"},
    {"#9d174d", "#f78fb9"},
    {"#6d28d9", "#b9a3ff"},
    {"#a16207", "#e5c454"},
    {"#0e7490", "#5bd0e0"},
    {"#475569", "#a9b8cc"},
    {"#be123c", "#ff8095"},
    {"#4d7c0f", "#b6de6a"},
    [PLOT_TEXT] = {"#1d2530", "#e4e8ee"},
    [PLOT_FAINT] = {"#5b6675", "#a3adba"},
    [PLOT_GRID] = {"#d9dee5", "#343c47"},
    [PLOT_GROUND] = {"#fff", "#14181e"},
    [PLOT_PANEL] = {"#f3f5f8", "#1e242c"},
    [PLOT_BEST] = {"#e3f1e5", "#1d3a26"},
};

/* Colours of every plot. */
static const struct plot_rule plot_colours[] = {
    {"svg text", "fill", PLOT_TEXT},       {"svg .name", "fill", PLOT_FAINT},
    {".grid,.minor", "stroke", PLOT_GRID}, {".strong", "stroke", PLOT_TEXT},
    {".frame", "stroke", PLOT_FAINT},      {".ground", "fill", PLOT_GROUND},
};
static const char plot_shapes[] =
    "svg text{font:12.5px system-ui,sans-serif}svg .title{font-size:13.5px;font-weight:600}\n"
    "path{fill:none}.minor{opacity:.45}.strong{stroke-width:1.4}\n"
    ".line{stroke-width:2;stroke-linejoin:round}.bound{stroke-dasharray:6 4}\n";

/* CSS variables of a page. */
static const struct plot_rule page_colours[] = {
    {":root", "--text", PLOT_TEXT},   {":root", "--faint", PLOT_FAINT},
    {":root", "--grid", PLOT_GRID},   {":root", "--ground", PLOT_GROUND},
    {":root", "--panel", PLOT_PANEL}, {":root", "--best", PLOT_BEST},
};
static const char page_shapes[] =
    ":root{color-scheme:light dark}\n"
    "body{background:var(--ground);color:var(--text);font:15px/1.5 system-ui,sans-serif;"
    "max-width:1500px;margin:2em auto;padding:0 1.2em}\n"
    "h1{font-size:1.5em;margin:0 0 .4em}h2{font-size:1.2em;margin:2em 0 .4em}\n"
    "code{font-size:.93em}.faint{color:var(--faint)}h1,h2,code,dd,li{overflow-wrap:anywhere}\n"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.1em 1.2em;margin:.6em 0}\n"
    "dt{color:var(--faint)}dd{margin:0}ul.keys{list-style:none;padding:0;margin:.6em 0;"
    "display:flex;flex-wrap:wrap;gap:.2em 1.6em}\n"
    ".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,520px),1fr));"
    "gap:1em}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;margin:1em 0;"
    "font-variant-numeric:tabular-nums}\n"
    "svg{display:block;width:100%;height:auto}.key{display:inline-block;width:34px;height:14px;"
    "vertical-align:-2px}\n"
    "th,td{padding:.22em .8em;text-align:right;white-space:nowrap;"
    "border-bottom:1px solid var(--grid)}th{font-weight:600}td.best{background:var(--best)}\n"
    "th:first-child,td:first-child{position:sticky;left:0;background:var(--ground)}\n"
    "@media(max-width:600px){body{margin:1em auto;padding:0 .8em}svg text{font-size:15px}"
    "th,td{padding:.22em .5em}dl{gap:.1em .8em}}\n";

/* Prints rules for light pages and, within prefers-color-scheme, for dark pages. Uses no CSS
 * variables, since some SVG viewers do not support them. */
static void plot_rules(const struct plot_rule *rules, int count, FILE *to)
{
    for (int dark = 0; dark < 2; dark++) {
        fputs(dark ? "@media(prefers-color-scheme:dark){\n" : "", to);
        for (int i = 0; i < count; i++)
            fprintf(to, "%s{%s:%s}", rules[i].selector, rules[i].property,
                    inks[rules[i].ink][dark]);
        fputs(dark ? "\n}\n" : "\n", to);
    }
}

/* Prints the data colours: as classes for lines and areas, or as CSS variables of a page. */
static void rules_series(bool variables, FILE *to)
{
    for (int dark = 0; dark < 2; dark++) {
        fputs(dark ? "@media(prefers-color-scheme:dark){\n" : "", to);
        for (int i = 0; i < PLOT_STYLES; i++) {
            if (variables)
                fprintf(to, ":root{--c%d:%s}", i, inks[i][dark]);
            else
                fprintf(to, ".s%d{stroke:%s}.f%d{fill:%s}\n", i, inks[i][dark], i, inks[i][dark]);
        }
        fputs(dark ? "}\n" : "\n", to);
    }
}

static void rules_plots(FILE *to)
{
    fputs(plot_shapes, to);
    plot_rules(plot_colours, COUNT(plot_colours), to);
    rules_series(false, to);
}

/* ---- pictures and pages ---- */

void plot_svg_begin(int width, int height, const struct plot_rule *rules, int count,
                    const char *more, FILE *to)
{
    fprintf(to,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\">\n<style>\nsvg{max-width:100%%;height:auto}\n",
            width, height, width, height);
    rules_plots(to);
    if (count)
        plot_rules(rules, count, to);
    fprintf(to, "%s</style>\n<rect class=\"ground\" width=\"100%%\" height=\"100%%\"/>\n", more);
}

void plot_page_begin(const char *title, FILE *to)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width\">\n<title>",
          to);
    markup_escape(title, to);
    fputs("</title>\n<style>\n", to);
    plot_rules(page_colours, COUNT(page_colours), to);
    rules_series(true, to);
    rules_plots(to);
    fprintf(to, "%s</style></head><body>\n", page_shapes);
}

void plot_text(double x, double y, const char *anchor, const char *class, const char *text,
               FILE *to)
{
    fprintf(to, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">", x, y, anchor,
            class);
    markup_escape(text, to);
    fputs("</text>\n", to);
}

/* ---- numbers ---- */

char *plot_bytes(double bytes, char text[PLOT_NUMBER])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;

    while (unit < 4 && bytes >= 1024) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, PLOT_NUMBER, "%.4g %s", bytes, units[unit]);
    return text;
}

char *plot_time(double ns, char text[PLOT_NUMBER])
{
    static const char *const units[] = {"ns", "µs", "ms", "s"};
    int unit = 0;

    while (unit < 3 && ns >= 999.5) {
        ns /= 1000;
        unit++;
    }
    snprintf(text, PLOT_NUMBER, "%.3g %s", ns, units[unit]);
    return text;
}

char *plot_number(double value, double tick, char text[PLOT_NUMBER])
{
    const double size = fmax(fabs(value), tick);
    const double unit = size >= 1e9 ? 1e9 : size >= 1e6 ? 1e6 : size >= 1e4 ? 1e3 : 1;
    const char *name = unit == 1e9 ? "G" : unit == 1e6 ? "M" : unit == 1e3 ? "k" : "";
    const int digits = (int)ceil(-log10(tick / unit) - 1e-9);

    if (fabs(value) < tick * 1e-6)
        snprintf(text, PLOT_NUMBER, "0");
    else if (digits > 6)
        snprintf(text, PLOT_NUMBER, "%.3g", value);
    else
        snprintf(text, PLOT_NUMBER, "%.*f%s", digits > 0 ? digits : 0, value / unit, name);
    return text;
}

double plot_tick(double least, double most, int wanted)
{
    const double rough = (most - least) / wanted;
    double power, rest;

    if (!(rough > 0) || !isfinite(rough))
        return 1;
    power = pow(10, floor(log10(rough)));
    rest = rough / power;
    return power * (rest < 1.5 ? 1 : rest < 3.5 ? 2 : rest < 7.5 ? 5 : 10);
}

/* ---- axes ---- */

double plot_at(const struct plot_axis *axis, double value)
{
    double part = axis->logarithmic ? log(value / axis->least) / log(axis->most / axis->least)
                                    : (value - axis->least) / (axis->most - axis->least);

    return axis->from + part * (axis->to - axis->from);
}

void plot_axis_round(struct plot_axis *axis, int wanted)
{
    const double step = plot_tick(axis->least, axis->most, wanted);
    const double first = floor(axis->least / step + 1e-9), last = ceil(axis->most / step - 1e-9);

    axis->least = first * step;
    axis->most = last * step;
    axis->label = plot_number;
    for (axis->count = 0; axis->count < PLOT_TICKS_MAX && first + axis->count <= last;)
        axis->ticks[axis->count] = (first + axis->count) * step, axis->count++;
}

/* Draws the grid, the tick labels, the names of the axes and the frame. */
static void plot_axes(const struct plot_axis *x, const struct plot_axis *y, FILE *to)
{
    const double left = x->from - INSET, right = x->to + INSET;
    double last = INFINITY;
    char text[PLOT_NUMBER];

    /* Label the x axis from the largest tick down, skipping labels that would overlap. */
    for (int i = x->count - 1; i >= 0; i--) {
        const double at = plot_at(x, x->ticks[i]);

        if (at > last - TICK_WIDTH)
            continue;
        last = at;
        fprintf(to, "<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/>", at, y->to, y->from);
        plot_text(at, y->from + 18, "middle", "tick",
                  x->label(x->ticks[i], x->ticks[1] - x->ticks[0], text), to);
    }
    plot_text((x->from + x->to) / 2, y->from + 44, "middle", "name", x->name, to);
    for (int i = 0; i < y->count; i++) {
        const double at = plot_at(y, y->ticks[i]);

        fprintf(to, "<path class=\"%s\" d=\"M%.1f %.1fH%.1f\"/>",
                y->strong > 0 && y->ticks[i] == y->strong ? "strong" : "grid", left, at, right);
        plot_text(left - 8, at + 4, "end", "tick",
                  y->label(y->ticks[i], y->ticks[1] - y->ticks[0], text), to);
    }
    fprintf(to, "<g transform=\"translate(14 %.1f) rotate(-90)\">", (y->from + y->to) / 2);
    plot_text(0, 0, "middle", "name", y->name, to);
    fprintf(to, "</g><path class=\"frame\" d=\"M%.1f %.1fV%.1fH%.1f\"/>\n", left, y->to, y->from,
            right);
}

/* ---- curves ---- */

static char *curves_size_label(double bytes, double distance, char text[PLOT_NUMBER])
{
    (void)distance;
    return plot_bytes(bytes, text);
}

static char *curves_time_label(double ns, double distance, char text[PLOT_NUMBER])
{
    (void)distance;
    return plot_time(ns, text);
}

static char *curves_ratio_label(double ratio, double distance, char text[PLOT_NUMBER])
{
    (void)distance;
    snprintf(text, PLOT_NUMBER,
             ratio < 1     ? "1/%.0f"
             : ratio < 100 ? "%.3g"
                           : "%.0f",
             ratio < 1 ? 1 / ratio : ratio);
    return text;
}

/* Returns the smallest of ..., 1, 2, 5, 10, 20, ... that is at least `value`. */
static double curves_round_up(double value)
{
    double power = pow(10, floor(log10(value)));

    for (double m = 1; m <= 10; m = m == 2 ? 5 : m * 2)
        if (m * power >= value * (1 - 1e-9))
            return m * power;
    return 10 * power;
}

/* Sets up the y axis. The caller has set the range of the values. */
static void curves_y(enum plot_kind kind, struct plot_axis *y)
{
    y->logarithmic = kind != PLOT_BANDWIDTH;
    if (kind == PLOT_TIME) {
        y->name = "time of a call";
        y->label = curves_time_label;
        /*
         * One tick for each power of ten; if the range is less than two decades, ticks at 1, 2, 5,
         * 10, 20, ...
         */
        double tick;
        bool narrow;

        y->most = curves_round_up(y->most * 1.01);
        y->least = 1 / curves_round_up(1 / (y->least * 0.99));
        narrow = y->most < 100 * y->least;
        tick = narrow ? y->least : pow(10, ceil(log10(y->least) - 1e-9));
        while (y->count < CURVE_TICKS && tick <= y->most * (1 + 1e-9)) {
            y->ticks[y->count++] = tick;
            tick = curves_round_up(narrow ? tick * 1.01 : tick * 9.9);
        }
    } else if (kind == PLOT_BANDWIDTH) {
        y->name = "bus bandwidth (GB/s)";
        y->least = 0;
        plot_axis_round(y, 5);
    } else {
        y->name = "relative time";
        y->label = curves_ratio_label;
        y->strong = 1;
        /* Ticks at powers of two, including 1. */
        int first = (int)floor(log2(fmin(y->least, 0.99)) + 1e-9);
        int last = (int)ceil(log2(fmax(y->most, 1.01)) - 1e-9);
        int step = (last - first) / CURVE_TICKS + 1;

        y->least = ldexp(1, first);
        y->most = ldexp(1, last);
        for (int i = first; i <= last; i++) {
            if (i % step == 0)
                y->ticks[y->count++] = ldexp(1, i);
        }
    }
}

/* Begins a marker (circle, square, triangle or diamond, radius about 4) at x, y. The caller prints
 * "</path>". */
static void curves_marker(FILE *to, int style, double x, double y)
{
    static const char *const shapes[] = {"m-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0 -7.2 0z",
                                         "m-3.2 -3.2h6.4v6.4h-6.4z", "m0 -4.4l4.2 7.4h-8.4z",
                                         "m0 -4.6l4.2 4.6l-4.2 4.6l-4.2 -4.6z"};

    fprintf(to, "<path class=\"f%d\" d=\"M%.1f %.1f%s\">", style % PLOT_STYLES, x, y,
            shapes[style % 4]);
}

/* Draws the line of a series, with gaps at missing values, and at each point a marker whose tooltip
 * shows the value. */
static void curves_series(const struct plot_series *series, enum plot_kind kind,
                          const struct plot_axis *x, const struct plot_axis *y, FILE *to)
{
    char size[PLOT_NUMBER], value[PLOT_NUMBER];
    bool down = false;

    fprintf(to, "<path class=\"line s%d%s\" d=\"", series->style % PLOT_STYLES,
            series->dashed ? " bound" : "");
    for (int i = 0; i < series->count; i++) {
        if (series->y[i] > 0)
            fprintf(to, "%s%.1f %.1f", down ? "L" : "M", plot_at(x, series->x[i]),
                    plot_at(y, series->y[i]));
        down = series->y[i] > 0;
    }
    fprintf(to, "\"/>\n");
    for (int i = 0; i < series->count; i++) {
        if (series->y[i] <= 0)
            continue;
        curves_marker(to, series->style, plot_at(x, series->x[i]), plot_at(y, series->y[i]));
        fprintf(to, "<title>");
        markup_escape(series->name, to);
        if (kind == PLOT_TIME)
            plot_time(series->y[i], value);
        else
            snprintf(value, sizeof(value),
                     kind == PLOT_BANDWIDTH ? "%.3g GB/s"
                     : series->y[i] < 100   ? "%.3g"
                                            : "%.0f",
                     series->y[i]);
        fprintf(to, ", %s: %s</title></path>\n", plot_bytes(series->x[i], size), value);
    }
}

bool plot_draw(const struct plot *plot, FILE *to)
{
    struct plot_axis x = {.name = "size (bytes)",
                          .logarithmic = true,
                          .from = LEFT + INSET,
                          .to = PLOT_WIDTH - RIGHT - INSET,
                          .label = curves_size_label};
    struct plot_axis y = {.from = PLOT_HEIGHT - BOTTOM, .to = TOP};

    /* Compute the range of all points. */
    x.least = y.least = INFINITY;
    x.most = y.most = 0;
    for (int s = 0; s < plot->series_count; s++) {
        const struct plot_series *series = &plot->series[s];

        for (int i = 0; i < series->count; i++) {
            if (series->y[i] <= 0)
                continue;
            x.least = fmin(x.least, series->x[i]);
            x.most = fmax(x.most, series->x[i]);
            y.least = fmin(y.least, series->y[i]);
            y.most = fmax(y.most, series->y[i]);
        }
    }
    if (x.least == x.most) { /* a single size is drawn in the middle */
        x.least /= 2;
        x.most *= 2;
    }
    if (!(x.least > 0 && x.least < x.most))
        return false;
    /* Ticks at the measured sizes, skipping those whose labels would overlap. */
    double last = INFINITY;
    int first = PLOT_TICKS_MAX;

    for (int i = plot->series[0].count - 1; i >= 0 && first > 0; i--) {
        if (plot->series[0].x[i] < x.least || plot->series[0].x[i] > x.most ||
            plot_at(&x, plot->series[0].x[i]) > last - TICK_WIDTH)
            continue;
        last = plot_at(&x, plot->series[0].x[i]);
        x.ticks[--first] = plot->series[0].x[i];
    }
    x.count = PLOT_TICKS_MAX - first;
    memmove(x.ticks, x.ticks + first, (size_t)x.count * sizeof(x.ticks[0]));
    curves_y(plot->kind, &y);
    plot_text(4, 18, "start", "title", plot->title, to);
    /* Minor grid lines within the decades, if there are few decades. */
    for (double power = pow(10, floor(log10(y.least)));
         plot->kind == PLOT_TIME && log10(y.most / y.least) <= 5 && power < y.most; power *= 10) {
        for (int m = 2; m < 10; m++) {
            if (m * power > y.least && m * power < y.most * (1 - 1e-9))
                fprintf(to, "<path class=\"minor\" d=\"M%.1f %.1fH%.1f\"/>\n", x.from - INSET,
                        plot_at(&y, m * power), x.to + INSET);
        }
    }
    plot_axes(&x, &y, to);
    for (int s = plot->series_count; s-- > 0;) /* the first series is drawn last, on top */
        curves_series(&plot->series[s], plot->kind, &x, &y, to);
    return true;
}

void plot_key(const struct plot_series *series, FILE *to)
{
    fprintf(to, "<path class=\"line s%d%s\" d=\"M1 7H33\"/>", series->style % PLOT_STYLES,
            series->dashed ? " bound" : "");
    curves_marker(to, series->style, 17, 7);
    fprintf(to, "</path>");
}
