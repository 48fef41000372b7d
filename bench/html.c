/* SPDX-License-Identifier: BSD-3-Clause */
/* The page: a head, then for each collective its curves and its table. */
#include "html.h"

#include "html_plot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The points of one collective that differ in their size only. */
struct page_group {
    const struct result *result;
    const struct result_point **points; /* sizes rise */
    int count;
    double *x, *y; /* what is plotted: y has a row of points for each contestant */
};

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
    "th,td{padding:.22em .8em;text-align:right;white-space:nowrap;"
    "border-bottom:1px solid var(--grid)}th{font-weight:600}td.best{background:var(--best)}\n";

/* ---- head ---- */

static void page_row(const char *name, const char *value, int code, FILE *to)
{
    if (!value || !*value)
        return;
    fprintf(to, "<dt>%s</dt><dd>%s", name, code ? "<code>" : "");
    plot_text(value, to);
    fprintf(to, "%s</dd>\n", code ? "</code>" : "");
}

static void page_head(const struct result *result, FILE *to)
{
    char machine[512], how[128];

    snprintf(machine, sizeof(machine), "%s, %s%s%d CPUs that may be used", result->host,
             result->cpu, *result->cpu ? ", " : "", result->cpus);
    snprintf(how, sizeof(how), "medians of %d rounds in turns; a time is the slowest rank's",
             result->rounds);
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

/* Each contestant with its line in the plots, its library, and why it went. */
static void page_legend(const struct result *result, FILE *to)
{
    fprintf(to, "<ul class=\"keys\">\n");
    for (int c = 0; c < result->contestant_count; c++) {
        const struct result_contestant *one = &result->contestants[c];
        struct plot_series series = {.name = one->name, .style = c, .dashed = one->limit};

        fprintf(to, "<li>");
        plot_legend(&series, to);
        fprintf(to, " ");
        plot_text(one->name, to);
        fprintf(to, " <span class=\"faint\">");
        plot_text(one->release, to);
        if (one->reason) {
            fprintf(to, " (left out: ");
            plot_text(one->reason, to);
            fprintf(to, ")");
        }
        fprintf(to, "</span></li>\n");
    }
    fprintf(to, "</ul>\n");
}

/* ---- curves ---- */

static double group_value(const struct page_group *group, enum plot_kind kind, int c, int p)
{
    const struct result_point *point = group->points[p];
    const struct result_time *time = &point->times[c], *first = &point->times[0];

    if (!time->measured || point->bytes == 0)
        return 0;
    if (kind == PLOT_TIME)
        return time->median;
    if (kind == PLOT_BANDWIDTH)
        return result_bus_bandwidth(point, group->result->ranks, time->median);
    return first->measured && first->median > 0 ? time->median / first->median : 0;
}

static void group_plot(struct page_group *group, enum plot_kind kind, struct plot_series *series,
                       FILE *to)
{
    static const char *const titles[] = {
        "Time", "Bus bandwidth", "Time relative to the first (above 1: the first is ahead)"};
    int contestants = group->result->contestant_count;
    struct plot plot = {.kind = kind, .title = titles[kind], .series = series};

    for (int c = 0; c < contestants; c++) {
        const struct result_contestant *one = &group->result->contestants[c];
        double *y = group->y + (size_t)c * (size_t)group->count;

        for (int p = 0; p < group->count; p++)
            y[p] = group_value(group, kind, c, p);
        series[c] = (struct plot_series){one->name, c, one->limit, group->x, y, group->count};
    }
    plot.series_count = contestants;
    plot_write(&plot, to);
}

static void group_plots(struct page_group *group, FILE *to)
{
    struct plot_series *series =
        calloc((size_t)group->result->contestant_count + 1, sizeof(*series));

    for (int p = 0; p < group->count; p++)
        group->x[p] = (double)group->points[p]->bytes;
    fprintf(to, "<div class=\"plots\">\n");
    if (series) {
        group_plot(group, PLOT_TIME, series, to);
        group_plot(group, PLOT_BANDWIDTH, series, to);
        if (group->result->contestant_count > 1)
            group_plot(group, PLOT_RATIO, series, to);
    }
    fprintf(to, "</div>\n");
    free(series);
}

/* ---- table ---- */

/* The fastest, bounds aside; -1: none was measured. */
static int point_best(const struct result *result, const struct result_point *point)
{
    int best = -1;

    for (int c = 0; c < result->contestant_count; c++) {
        if (point->times[c].measured && !result->contestants[c].limit &&
            (best < 0 || point->times[c].median < point->times[best].median))
            best = c;
    }
    return best;
}

static void page_cell(const struct page_group *group, const struct result_point *point, int c,
                      FILE *to)
{
    const struct result_time *time = &point->times[c], *first = &point->times[0];
    char text[24];

    if (!time->measured) {
        fprintf(to, "<td class=\"faint\" title=\"");
        plot_text(time->reason ? time->reason : "not measured", to);
        fprintf(to, "\">%s</td>", time->wrong ? "wrong" : "&ndash;");
        return;
    }
    fprintf(to, "<td%s title=\"bus bandwidth %.3g GB/s, rounds:",
            point_best(group->result, point) == c ? " class=\"best\"" : "",
            result_bus_bandwidth(point, group->result->ranks, time->median));
    for (int r = 0; r < time->round_count; r++)
        fprintf(to, " %s%s", plot_time(time->rounds[r], text),
                r + 1 < time->round_count ? "," : "");
    fprintf(to, "\">%s", plot_time(time->median, text));
    if (c > 0 && first->measured && first->median > 0)
        fprintf(to, " <span class=\"faint\">&times;%.3g</span>", time->median / first->median);
    fprintf(to, "</td>");
}

static void group_table(const struct page_group *group, FILE *to)
{
    const struct result *result = group->result;
    char text[24];

    fprintf(to, "<div class=\"wide\"><table><thead><tr><th>size</th>");
    for (int c = 0; c < result->contestant_count; c++) {
        fprintf(to, "<th>");
        plot_text(result->contestants[c].name, to);
        fprintf(to, "</th>");
    }
    fprintf(to, "</tr></thead><tbody>\n");
    for (int p = 0; p < group->count; p++) {
        fprintf(to, "<tr><td>%s</td>", plot_bytes((double)group->points[p]->bytes, text));
        for (int c = 0; c < result->contestant_count; c++)
            page_cell(group, group->points[p], c, to);
        fprintf(to, "</tr>\n");
    }
    fprintf(to,
            "</tbody></table></div>\n"
            "<p class=\"faint\">Time of a call, and that relative to the first contestant's "
            "(&times;). The fastest is marked. Point at a time for bus bandwidth and the medians "
            "of the rounds.</p>\n");
}

/* ---- groups ---- */

static int same_group(const struct result_point *a, const struct result_point *b)
{
    return strcmp(a->collective, b->collective) == 0 && strcmp(a->dtype, b->dtype) == 0 &&
           strcmp(a->op ? a->op : "", b->op ? b->op : "") == 0 && a->root == b->root &&
           a->in_place == b->in_place;
}

static int by_size(const void *a, const void *b)
{
    const struct result_point *x = *(const struct result_point *const *)a;
    const struct result_point *y = *(const struct result_point *const *)b;

    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* All points like the one at `first`, if that is the first of them. */
static int group_gather(const struct result *result, int first, struct page_group *group)
{
    const struct result_point *like = &result->points[first];

    group->count = 0;
    for (int p = 0; p < first; p++)
        if (same_group(&result->points[p], like))
            return 0;
    for (int p = first; p < result->point_count; p++)
        if (same_group(&result->points[p], like))
            group->points[group->count++] = &result->points[p];
    qsort(group->points, (size_t)group->count, sizeof(group->points[0]), by_size);
    return group->count;
}

static void group_write(struct page_group *group, FILE *to)
{
    const struct result_point *point = group->points[0];

    fprintf(to, "<h2>%s <span class=\"faint\">%s", point->collective, point->dtype);
    if (point->op)
        fprintf(to, " %s", point->op);
    if (point->root >= 0)
        fprintf(to, ", root %d", point->root);
    fprintf(to, "%s</span></h2>\n", point->in_place ? ", in place" : "");
    page_legend(group->result, to);
    group_plots(group, to);
    group_table(group, to);
}

int html_write(const struct result *result, FILE *to)
{
    size_t points = (size_t)result->point_count + 1;
    struct page_group group = {.result = result};
    int status = -1;

    group.points = calloc(points, sizeof(*group.points));
    group.x = calloc(points, sizeof(double));
    group.y = calloc(points * ((size_t)result->contestant_count + 1), sizeof(double));
    if (group.points && group.x && group.y) {
        page_head(result, to);
        for (int p = 0; p < result->point_count; p++)
            if (group_gather(result, p, &group) > 0)
                group_write(&group, to);
        fprintf(to, "</body></html>\n");
        status = fflush(to) == 0 && !ferror(to) ? 0 : -1;
    } else {
        errno = ENOMEM;
    }
    free(group.points);
    free(group.x);
    free(group.y);
    return status;
}
