/* SPDX-License-Identifier: BSD-3-Clause */
/* The page: a head, then for each collective its curves and its table. */
#include "html.h"

#include "curves.h"
#include "tools/common/markup.h"

#include <errno.h>

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
