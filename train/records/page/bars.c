/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the time of a step goes. */
#include "bars.h"

#include <math.h>
#include <stdlib.h>

#include "svg.h"

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
