/* SPDX-License-Identifier: BSD-3-Clause */
/* The picture: a legend on top, then a row of two plots for each collective. */
#include "svg.h"

#include "curves.h"
#include "tools/common/markup.h"

#include <errno.h>
#include <string.h>

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
