/* SPDX-License-Identifier: BSD-3-Clause */
/* Text, numbers, ticks. */
#include "svg.h"

#include <math.h>

#include "tools/common/text.h"

void svg_text(double x, double y, const char *anchor, const char *class, const char *text, FILE *to)
{
    fprintf(to, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">", x, y, anchor,
            class);
    markup_escape(text, to);
    fputs("</text>\n", to);
}

void svg_line(double x1, double y1, double x2, double y2, const char *class, FILE *to)
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
