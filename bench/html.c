/* SPDX-License-Identifier: BSD-3-Clause */
/* Results as curves: an HTML page, and an SVG picture. */
#include "bench/report.h"
#include "tools/common/plot.h"
#include "tools/common/text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The results grouped into curves. */

/* The measurements of one collective, and its plots. */
struct curves {
    const struct result *result;
    const struct result_measurement **measurements; /* in ascending order of size */
    int count, next;
    double *x, *y; /* y contains a row of measurements for each library */
    struct plot_series *series;
    char title[96]; /* title of the last plot */
};

/* Prepares the curves. Returns -1 if out of memory. The caller calls curves_close in any case. */
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

/* Selects the next collective, in the order of measurement; false: no more collectives. */
static bool curves_next(struct curves *curves)
{
    const struct result *result = curves->result;

    curves->count = 0;
    while (curves->count == 0 && curves->next < result->measurement_count) {
        const int first = curves->next++;
        bool seen = false;

        for (int p = 0; p < first && !seen; p++)
            seen = curves_same(&result->measurements[p], &result->measurements[first]);
        for (int p = first; p < result->measurement_count && !seen; p++)
            if (curves_same(&result->measurements[p], &result->measurements[first]))
                curves->measurements[curves->count++] = &result->measurements[p];
    }
    qsort(curves->measurements, (size_t)curves->count, sizeof(curves->measurements[0]), by_size);
    for (int p = 0; p < curves->count; p++)
        curves->x[p] = (double)curves->measurements[p]->bytes;
    return curves->count > 0;
}

/*
 * Writes the common properties of the measurements: "float32 sum, root 0, in place". Returns text.
 */
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

/* Returns a plot of that kind, valid until the next call of a curves function. */
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

/* The picture: a legend, then a row of two plots for each collective. */

/* Sizes of the head of a row, and of an entry of the legend. */
#define ROW_HEAD 34
#define KEY_WIDTH_MIN 156
#define KEY_HEIGHT 22
#define KEY_LINE 56 /* the line sample of an entry, and the gap after its name */
#define LETTER_WIDTH 7

/* Returns the number of entries per line of the legend, given the longest name. */
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

int svg_write(const struct result *result, FILE *to)
{
    struct curves curves;
    int status = -1;

    if (curves_open(result, &curves) == 0) {
        int keys = svg_keys_a_line(result);
        int y = 12 + (result->library_count + keys - 1) / keys * KEY_HEIGHT, height = y;

        while (curves_next(&curves))
            height += ROW_HEAD + PLOT_HEIGHT;
        curves.next = 0; /* restart */
        plot_svg_begin(2 * PLOT_WIDTH, height, NULL, 0, "", to);
        svg_legend(curves.result, to);
        for (; curves_next(&curves); y += ROW_HEAD + PLOT_HEIGHT) {
            char what[128];

            fprintf(to, "<text class=\"title\" x=\"20\" y=\"%d\">%s, %s, %d rank%s</text>\n",
                    y + 24, curves.measurements[0]->collective, curves_what(&curves, what),
                    curves.result->ranks, curves.result->ranks == 1 ? "" : "s");
            svg_plot(&curves, PLOT_TIME, 0, y + ROW_HEAD, to);
            svg_plot(&curves, curves.result->library_count > 1 ? PLOT_RATIO : PLOT_BANDWIDTH,
                     PLOT_WIDTH, y + ROW_HEAD, to);
        }
        fprintf(to, "</svg>\n");
        status = fflush(to) == 0 && !ferror(to) ? 0 : -1;
    } else {
        errno = ENOMEM;
    }
    curves_close(&curves);
    return status;
}

/* The page: a head, then curves and a table for each collective. */

/* ---- head ---- */

static void page_row(const char *name, const char *value, int code, FILE *to)
{
    if (!value || !*value)
        return;
    fprintf(to, "<dt>%s</dt><dd>%s", name, code ? "<code>" : "");
    markup_escape(value, to);
    fprintf(to, "%s</dd>\n", code ? "</code>" : "");
}

/* ---- curves ---- */

static void page_plot(struct curves *curves, enum plot_kind kind, FILE *to)
{
    struct plot plot = curves_plot(curves, kind);

    fprintf(to, "<svg viewBox=\"0 0 %d %d\" role=\"img\">\n", PLOT_WIDTH, PLOT_HEIGHT);
    plot_draw(&plot, to);
    fprintf(to, "</svg>\n");
}

/* ---- table ---- */

/*
 * Returns the index of the fastest library; -1: no library was measured. Skips the entry with
 * `limit` set, which is the bound of this machine and not a library.
 */
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
    char text[PLOT_NUMBER];

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
    char text[PLOT_NUMBER];

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
            "<p class=\"faint\">Time per call, and relative to the first library "
            "(&times;). The fastest is marked. Point at a time for bus bandwidth and the medians "
            "of the rounds.</p>\n");
}

/* ---- the whole page ---- */

int html_write(const struct result *result, FILE *to)
{
    struct curves curves;
    int status = -1;

    if (curves_open(result, &curves) == 0) {
        char machine[512], how[128], title[48];

        snprintf(machine, sizeof(machine), "%s, %s%s%d usable CPUs", result->host, result->cpu,
                 *result->cpu ? ", " : "", result->cpus);
        snprintf(how, sizeof(how), "medians of %d rounds; a time is %s", result->rounds,
                 result->measurement_count && result->measurements[0].apart
                     ? "the mean over the ranks, of calls timed separately after barriers"
                     : "that of the slowest rank, of consecutive calls");
        snprintf(title, sizeof(title), "dist_bench, %d ranks", result->ranks);
        plot_page_begin(title, to);
        fprintf(to, "<h1>dist_bench: %d rank%s</h1>\n<dl>\n", result->ranks,
                result->ranks == 1 ? "" : "s");
        page_row("Command", result->command, 1, to);
        page_row("Machine", machine, 0, to);
        page_row("System", result->system, 0, to);
        page_row("libdist", result->version, 0, to);
        page_row("Date", result->date, 0, to);
        page_row("Figures", how, 0, to);
        fprintf(to, "</dl>\n");
        while (curves_next(&curves)) {
            char what[128];

            fprintf(to, "<h2>%s <span class=\"faint\">%s</span></h2>\n",
                    curves.measurements[0]->collective, curves_what(&curves, what));
            /* List each library with its line style, its release, and why it was excluded. */
            fprintf(to, "<ul class=\"keys\">\n");
            for (int c = 0; c < curves.result->library_count; c++) {
                const struct result_library *one = &curves.result->libraries[c];
                struct plot_series series = {.name = one->name, .style = c, .dashed = one->limit};

                fprintf(to, "<li><svg class=\"key\" viewBox=\"0 0 34 14\">");
                plot_key(&series, to);
                fprintf(to, "</svg> ");
                markup_escape(one->name, to);
                fprintf(to, " <span class=\"faint\">");
                markup_escape(one->release, to);
                if (one->reason) {
                    fprintf(to, " (excluded: ");
                    markup_escape(one->reason, to);
                    fprintf(to, ")");
                }
                fprintf(to, "</span></li>\n");
            }
            fprintf(to, "</ul>\n");
            fprintf(to, "<div class=\"plots\">\n");
            page_plot(&curves, PLOT_TIME, to);
            page_plot(&curves, PLOT_BANDWIDTH, to);
            if (curves.result->library_count > 1)
                page_plot(&curves, PLOT_RATIO, to);
            fprintf(to, "</div>\n");
            page_table(&curves, to);
        }
        fprintf(to, "</body></html>\n");
        status = ferror(to) ? -1 : 0;
    } else {
        errno = ENOMEM;
    }
    curves_close(&curves);
    return status;
}
