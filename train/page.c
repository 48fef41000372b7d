/* SPDX-License-Identifier: BSD-3-Clause */
/* --report: writes the HTML page and its SVG charts (values over the steps; the time of a step). */
#include "page.h"

#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <time.h>

#include "failure.h"
#include "file.h"
#include "tools/common/plot.h"
#include "tools/common/text.h"

/* ---- the history of a value over the steps of a run ---- */

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

/* Adds a point; x never decreases. If all bins are full, merges each pair of bins into one. */
static void history_add(struct history *history, double x, double y)
{
    const struct history_bin point = isfinite(y) ? (struct history_bin){x, x, y, y, y, 1, 0}
                                                 : (struct history_bin){x, x, 0, 0, 0, 0, 1};
    struct history_bin *bins = history->bins, *last = bins + history->count - 1;

    if (history->stride == 0)
        history->stride = 1;
    if (history->count > 0 && last->finite + last->bad < history->stride) {
        history_merge(last, &point);
        return;
    }
    if (history->count == HISTORY_BINS) {
        for (int i = 0; i < HISTORY_BINS / 2; i++) {
            bins[i] = bins[2 * i];
            history_merge(&bins[i], &bins[2 * i + 1]);
        }
        history->count = HISTORY_BINS / 2;
        history->stride *= 2;
    }
    bins[history->count++] = point;
}

/* Returns the mean of a bin's finite points, or NaN if it has none. */
static double history_mean(const struct history_bin *bin)
{
    return bin->finite ? bin->sum / (double)bin->finite : (double)NAN;
}

void page_add_step(struct page *page, const struct record_step *step, double loss)
{
    const double at = (double)step->step;

    history_add(&page->loss, at, loss);
    history_add(&page->lr, at, step->lr);
    history_add(&page->pace, at,
                step->seconds > 0 ? step->seconds / (double)step->samples : (double)NAN);
    if (!isfinite(loss) && page->bad++ == 0)
        page->bad_step = step->step;
    page->steps++;
    page->samples += step->samples;
    page->seconds += step->seconds;
    page->epoch = step->epoch;
}

void page_add_test(struct page *page, const struct record_test *test)
{
    const double accuracy = (double)test->correct / (double)test->count;

    history_add(&page->test_loss, (double)test->step, test->loss);
    history_add(&page->accuracy, (double)test->step, accuracy);
    if (page->best.count == 0 || accuracy > (double)page->best.correct / (double)page->best.count)
        page->best = *test;
    page->last = *test;
}

/* ---- charts of values over the steps ---- */

/* In SVG units; the picture is scaled to the width of the page. */
enum { CHART_W = 640, CHART_H = 290, CHART_LEFT = 66, CHART_RIGHT = 18, CHART_TOP = 14 };
enum { CHART_BOTTOM = 46, CHART_POINTS_MOST = 60 };

struct chart_series {
    const struct history *history;
    const char *name;
    const char *class; /* CSS class of its line; "NAME-band" is the class of its band */
    bool points;       /* mark each value if there are few */
};

struct chart {
    const char *heading;
    const char *title; /* for screen readers */
    const char *y;     /* label of the axis, with its unit */
    bool percent;      /* show percentages, at most 100; otherwise the y axis begins at 0 */
    bool inverse;      /* show 1 / value, so that the mean of a rate is its mean over time */
    struct chart_series series[2]; /* the second may be empty */
};

/* The axes of a chart. */
struct chart_frame {
    const struct chart *chart;
    struct plot_axis x, y;
    bool empty; /* there is no finite value */
};

static void svg_line(double x1, double y1, double x2, double y2, const char *class, FILE *to)
{
    fprintf(to, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", x1, y1,
            x2, y2, class);
}

/*
 * Draws the x axis at height `bottom`: at each tick a line of the given class that begins at `top`,
 * and a number.
 */
static void svg_axis(const struct plot_axis *x, double tick, double top, double bottom,
                     const char *class, FILE *to)
{
    char text[PLOT_NUMBER];

    for (double value = ceil(x->least / tick - 1e-9) * tick; value <= x->most + tick * 1e-6;
         value += tick) {
        const double at = plot_at(x, value);

        svg_line(at, top, at, bottom + 5, class, to);
        plot_text(at, bottom + 19, "middle", "tick", plot_number(value, tick, text), to);
    }
    svg_line(x->from, bottom, x->to, bottom, "axis", to);
}

/* Converts a value to the unit of the chart. */
static double chart_value(const struct chart *chart, double value)
{
    return (chart->inverse ? 1 / value : value) * (chart->percent ? 100 : 1);
}

/* Return the x coordinate of a bin's middle, and the y coordinate of a value. */
static double chart_x(const struct chart_frame *frame, const struct history_bin *bin)
{
    return plot_at(&frame->x, (bin->first + bin->last) / 2);
}

static double chart_y(const struct chart_frame *frame, double value)
{
    return plot_at(&frame->y, chart_value(frame->chart, value));
}

/*
 * Computes axes that include all steps and values, end at ticks, and have a length greater than 0.
 */
static struct chart_frame chart_frame(const struct chart *chart, const struct history *steps)
{
    struct chart_frame frame = {
        .chart = chart,
        .x = {.from = CHART_LEFT,
              .to = CHART_W - CHART_RIGHT,
              .least = INFINITY,
              .most = -INFINITY},
        .y = {.from = CHART_H - CHART_BOTTOM,
              .to = CHART_TOP,
              .least = INFINITY,
              .most = -INFINITY},
    };
    struct plot_axis *x = &frame.x, *y = &frame.y;

    /*
     * Include both the steps and the chart's own values, because a run that only tests has no
     * steps.
     */
    for (int s = -1; s < 2 && (s < 0 || chart->series[s].history); s++) {
        const struct history *history = s < 0 ? steps : chart->series[s].history;

        if (history->count > 0) {
            x->least = fmin(x->least, history->bins[0].first);
            x->most = fmax(x->most, history->bins[history->count - 1].last);
        }
    }
    if (x->least > x->most)
        x->least = x->most = 0;
    for (int s = 0; s < 2 && chart->series[s].history; s++) {
        const struct history *history = chart->series[s].history;

        for (int i = 0; i < history->count; i++) {
            const double a = chart_value(chart, history->bins[i].least);
            const double b = chart_value(chart, history->bins[i].most);

            if (!history->bins[i].finite)
                continue;
            y->least = fmin(y->least, fmin(a, b));
            y->most = fmax(y->most, fmax(a, b));
        }
    }
    frame.empty = y->least > y->most;
    if (frame.empty)
        y->least = 0, y->most = 1;
    if (!chart->percent && y->least > 0)
        y->least = 0;
    if (y->most - y->least < fabs(y->most) * 1e-9 || y->most == y->least) {
        const double around = y->most != 0 ? fabs(y->most) / 10 : 1;

        y->least -= chart->percent ? around : 0;
        y->most += around;
    }
    plot_axis_round(y, 5);
    if (chart->percent)
        y->most = fmin(y->most, 100);
    if (x->most <= x->least)
        x->least -= x->least >= 1 ? 1 : 0, x->most = x->least + 2;
    return frame;
}

/*
 * Draws a piece of the line without gaps; a single value becomes a dot. If bins contain several
 * values, a band shows their minimum and maximum.
 */
static void chart_piece(const struct chart_frame *frame, const struct chart_series *series,
                        int from, int end, FILE *to)
{
    const struct history_bin *bins = series->history->bins;

    if (series->history->stride > 1) {
        fprintf(to, "<polygon class=\"%s-band\" points=\"", series->class);
        for (int i = from; i < end; i++)
            fprintf(to, "%.1f,%.1f ", chart_x(frame, &bins[i]), chart_y(frame, bins[i].most));
        for (int i = end - 1; i >= from; i--)
            fprintf(to, "%.1f,%.1f ", chart_x(frame, &bins[i]), chart_y(frame, bins[i].least));
        fputs("\"/>\n", to);
    }
    if (end - from == 1)
        fprintf(to, "<circle class=\"%s-dot\" r=\"3\" cx=\"%.1f\" cy=\"%.1f\"/>\n", series->class,
                chart_x(frame, &bins[from]), chart_y(frame, history_mean(&bins[from])));
    fprintf(to, "<polyline class=\"%s\" points=\"", series->class);
    for (int i = from; i < end; i++)
        fprintf(to, "%.1f,%.1f ", chart_x(frame, &bins[i]), chart_y(frame, history_mean(&bins[i])));
    fputs("\"/>\n", to);
}

/* Draws a column behind bins [from, end), each of which has values that are not finite. */
static void chart_bad(const struct chart_frame *frame, const struct chart_series *series, int from,
                      int end, FILE *to)
{
    const struct history_bin *bins = series->history->bins;
    const double first = bins[from].first, last = bins[end - 1].last;
    const double x = plot_at(&frame->x, first);
    int64_t bad = 0;

    for (int i = from; i < end; i++)
        bad += bins[i].bad;
    fprintf(to,
            "<rect class=\"bad\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"><title>%s: "
            "%" PRId64 " not finite, steps %.0f to %.0f</title></rect>\n",
            x - 1.5, CHART_TOP, plot_at(&frame->x, last) - x + 3,
            CHART_H - CHART_BOTTOM - CHART_TOP, series->name, bad, first, last);
}

/*
 * Draws columns for all runs of bins with values that are not finite, then lines for all runs of
 * bins with finite values. If there are few values, marks each with a dot that has a tooltip.
 */
static void chart_series(const struct chart_frame *frame, const struct chart_series *series,
                         FILE *to)
{
    const struct history *history = series->history;

    for (int bad = 1; bad >= 0; bad--) {
        for (int i = 0, from = 0; i <= history->count; i++) {
            if (i < history->count && (bad ? history->bins[i].bad : history->bins[i].finite) > 0)
                continue;
            if (i > from)
                (bad ? chart_bad : chart_piece)(frame, series, from, i, to);
            from = i + 1;
        }
    }
    for (int i = 0; series->points && history->count <= CHART_POINTS_MOST && i < history->count;
         i++) {
        const struct history_bin *bin = &history->bins[i];

        if (!bin->finite)
            continue;
        fprintf(to,
                "<circle class=\"%s-dot\" r=\"4\" cx=\"%.1f\" cy=\"%.1f\"><title>%s: %.6g, step "
                "%.0f</title></circle>\n",
                series->class, chart_x(frame, bin), chart_y(frame, history_mean(bin)), series->name,
                chart_value(frame->chart, history_mean(bin)), (bin->first + bin->last) / 2);
    }
}

/*
 * Draws a card: heading, legend, chart. Accepts any values: none, one, equal ones, or values that
 * are not finite (a column marks them). The x axis includes `steps`.
 */
static void chart_draw(const struct chart *chart, const struct history *steps, FILE *to)
{
    const struct chart_frame frame = chart_frame(chart, steps);
    const struct plot_axis *x = &frame.x, *y = &frame.y;
    char text[PLOT_NUMBER];

    fprintf(to, "<section class=\"card\"><div class=\"head\"><h2>%s</h2><div class=\"key\">",
            chart->heading);
    for (int i = 0; i < 2 && chart->series[i].history; i++)
        fprintf(to, "<span style=\"--c:var(--%s)\">%s</span>",
                strcmp(chart->series[i].class, "lr") == 0 ? "data" : chart->series[i].class,
                chart->series[i].name);
    fprintf(to, "</div></div>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n",
            CHART_W, CHART_H, chart->title);
    for (int i = 0; i < y->count && y->ticks[i] <= y->most; i++) {
        const double at = plot_at(y, y->ticks[i]);

        svg_line(x->from, at, x->to, at, "grid", to);
        plot_text(x->from - 9, at + 4, "end", "tick",
                  plot_number(y->ticks[i], y->ticks[1] - y->ticks[0], text), to);
    }
    svg_axis(x, fmax(1, plot_tick(x->least, x->most, 7)), y->from, y->from, "axis", to);
    plot_text((x->from + x->to) / 2, CHART_H - 6, "middle", "label", "step", to);
    fprintf(to, "<g transform=\"translate(14,%.1f) rotate(-90)\">", (y->to + y->from) / 2);
    plot_text(0, 0, "middle", "label", chart->y, to);
    fputs("</g>\n", to);
    for (int i = 0; i < 2 && chart->series[i].history; i++)
        chart_series(&frame, &chart->series[i], to);
    if (frame.empty)
        plot_text((x->from + x->to) / 2, y->from / 2, "middle", "none", "no values", to);
    fputs("</svg>\n</section>\n", to);
}

/* ---- the time of a step, as stacked bars ---- */

enum { BARS_W = 1000, BARS_LEFT = 76, BARS_RIGHT = 20, BARS_AXIS = 44 };

static const struct {
    const char *name, *class; /* CSS class of its colour */
} bars_parts[BALANCE_PARTS] = {
    [BALANCE_FORWARD] = {"forward", "forward"},
    [BALANCE_BACKWARD] = {"backward", "backward"},
    [BALANCE_UPDATE] = {"update", "update"},
    [BALANCE_DATA] = {"data", "data"},
    [BALANCE_COMMUNICATION] = {"exposed communication", "communication"},
    [BALANCE_WAITING] = {"waiting for the slowest", "waiting"},
    [BALANCE_OTHER] = {"other", "other"},
};

/* Return the seconds per step of a rank: in total, and without waiting and communication. */
static double bars_total(const struct balance_rank *rank)
{
    double sum = 0;

    for (int i = 0; i < BALANCE_PARTS; i++)
        sum += rank->seconds[i];
    return rank->steps > 0 ? sum / rank->steps : 0;
}

static double bars_work(const struct balance_rank *rank)
{
    const double not_own = rank->seconds[BALANCE_WAITING] + rank->seconds[BALANCE_COMMUNICATION];

    return rank->steps > 0 ? bars_total(rank) - not_own / rank->steps : 0;
}

/* Returns the sum over all ranks. */
static struct balance_rank bars_sum(const struct balance *balance)
{
    struct balance_rank sum = {.steps = 0};

    for (int rank = 0; rank < balance->world; rank++) {
        for (int i = 0; i < BALANCE_PARTS; i++)
            sum.seconds[i] += balance->ranks[rank].seconds[i];
        sum.steps += balance->ranks[rank].steps;
    }
    return sum;
}

/*
 * Begins a picture of bars that are `height` high in total, with an axis in milliseconds up to at
 * least `most` seconds. Returns the axis.
 */
static struct plot_axis bars_begin(double most, double height, const char *title, FILE *to)
{
    struct plot_axis x = {
        .from = BARS_LEFT, .to = BARS_W - BARS_RIGHT, .most = most > 0 ? most * 1e3 : 1};
    const double tick = plot_tick(0, x.most, 8);

    x.most = ceil(x.most / tick - 1e-9) * tick;
    fprintf(to, "<svg viewBox=\"0 0 %d %.0f\" role=\"img\" aria-label=\"%s\">\n", BARS_W,
            height + BARS_AXIS, title);
    svg_axis(&x, plot_tick(0, x.most, 8), 0, height, "grid", to);
    plot_text((x.from + x.to) / 2, height + 38, "middle", "label", "milliseconds per step", to);
    return x;
}

static void bars_draw(const struct balance_rank *rank, const char *label, const struct plot_axis *x,
                      double y, double height, FILE *to)
{
    double done = 0;

    if (height >= 9)
        plot_text(BARS_LEFT - 9, y + height / 2 + (height < 12 ? 3.5 : 4), "end",
                  height < 12 ? "small" : "tick", label, to);
    for (int i = 0; i < BALANCE_PARTS && rank->steps > 0; i++) {
        const double part = rank->seconds[i] / rank->steps * 1e3;

        if (part > 0)
            fprintf(to,
                    "<rect class=\"%s\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\">"
                    "<title>%s, %s: %.3f ms</title></rect>\n",
                    bars_parts[i].class, plot_at(x, done), y, plot_at(x, part) - BARS_LEFT, height,
                    label, bars_parts[i].name, part);
        done += part;
    }
}

/* Sorts ranks by their own work, longest first. */
static int bars_compare(const void *a, const void *b, void *arg)
{
    const struct balance_rank *ranks = arg;
    const double left = bars_work(&ranks[*(const int *)a]);
    const double right = bars_work(&ranks[*(const int *)b]);

    return left < right ? 1 : left > right ? -1 : 0;
}

/*
 * Draws one bar per rank; if there are more than BARS_MOST ranks, only the ranks with the most time
 * apart from waiting and communication.
 */
static void bars_ranks(const struct balance *balance, FILE *to)
{
    const int count = balance->world < BARS_MOST ? balance->world : BARS_MOST;
    const double pitch = count <= 8 ? 30 : count <= 32 ? 20 : 13;
    int *order = calloc((size_t)balance->world, sizeof(*order));
    struct plot_axis x;
    double most = 0;
    char label[32];

    if (!order)
        return;
    for (int i = 0; i < balance->world; i++)
        order[i] = i;
    if (count < balance->world)
        qsort_r(order, (size_t)balance->world, sizeof(*order), bars_compare, balance->ranks);
    for (int i = 0; i < count; i++)
        most = fmax(most, bars_total(&balance->ranks[order[i]]));
    x = bars_begin(most, count * pitch, "where the time of a step goes, rank by rank", to);
    for (int i = 0; i < count; i++) {
        snprintf(label, sizeof(label), "rank %d", order[i]);
        bars_draw(&balance->ranks[order[i]], label, &x, i * pitch + pitch * 0.1, pitch * 0.8, to);
    }
    fputs("</svg>\n", to);
    free(order);
}

/* ---- the machine and the job ---- */

enum { HOST_FACTS = 8 };

__attribute__((format(printf, 4, 5))) static void
host_add(struct record_fact *facts, int *count, const char *name, const char *format, ...)
{
    struct record_fact *fact = &facts[*count];
    va_list args;

    *fact = (struct record_fact){.changed = false};
    snprintf(fact->name, sizeof(fact->name), "%s", name);
    va_start(args, format);
    vsnprintf(fact->value, sizeof(fact->value), format, args);
    va_end(args);
    *count += fact->value[0] != '\0';
}

/* Writes facts about this machine and the group (may be NULL). Returns their number. */
static int host_facts(dist_group *group, struct record_fact facts[HOST_FACTS])
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256], text[256] = "";
    struct utsname name;
    struct sysinfo info;
    cpu_set_t set;
    int count = 0;

    if (uname(&name) == 0)
        host_add(facts, &count, "host of rank 0", "%s", name.nodename);
    /* Use the first "model name", such as "AMD EPYC 9B14". */
    while (file && fgets(line, sizeof(line), file) && !*text) {
        const char *at = strchr(line, ':');

        if (at && strncmp(line, "model name", 10) == 0)
            snprintf(text, sizeof(text), "%.*s", (int)strcspn(at + 2, "\n"), at + 2);
    }
    if (file)
        fclose(file);
    host_add(facts, &count, "processor", "%s", text);
    host_add(facts, &count, "CPUs that rank 0 may use", "%d",
             sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0);
    if (sysinfo(&info) == 0)
        host_add(facts, &count, "memory", "%.1f GiB",
                 (double)info.totalram * info.mem_unit / (1024.0 * 1024 * 1024));
    host_add(facts, &count, "system", "%s %s, %s", name.sysname, name.release, name.machine);
    host_add(facts, &count, "libdist", "%s", dist_version());
    if (group) {
        host_add(facts, &count, "backend", "%s", dist_get_backend(group));
        host_add(facts, &count, "ranks", "%d", dist_get_world_size(group));
    }
    return count;
}

/* ---- text and tables of the page ---- */

enum { TABLE_TEXT = 96 };

/* Formats a duration: "12 s", "3 min 20 s", "5 h 02 min". */
static void table_duration(double seconds, char text[TABLE_TEXT])
{
    const long whole = lround(seconds);

    if (seconds < 1)
        snprintf(text, TABLE_TEXT, "%.3g ms", seconds * 1e3);
    else if (seconds < 10)
        snprintf(text, TABLE_TEXT, "%.1f s", seconds);
    else if (whole < 60)
        snprintf(text, TABLE_TEXT, "%ld s", whole);
    else if (whole < 3600)
        snprintf(text, TABLE_TEXT, "%ld min %02ld s", whole / 60, whole % 60);
    else
        snprintf(text, TABLE_TEXT, "%ld h %02ld min", whole / 3600, whole / 60 % 60);
}

/*
 * Formats a whole number with groups of three digits, "1 234 567", that do not break across lines.
 */
static void table_count(double value, char text[TABLE_TEXT])
{
    char digits[48];
    const int length = snprintf(digits, sizeof(digits), "%.0f", value);
    size_t at = 0;

    for (int i = 0; i < length && at < TABLE_TEXT - 16; i++) {
        if (i > 0 && (length - i) % 3 == 0 && length > 4)
            at += (size_t)snprintf(text + at, TABLE_TEXT - at, "&#8239;");
        text[at++] = digits[i];
    }
    text[at] = '\0';
}

/* Writes the state and the size of the training. */
static void page_subtitle(const struct page *page, FILE *to)
{
    const struct records_setup *setup = page->setup;
    char when[TABLE_TEXT], steps[TABLE_TEXT], first[TABLE_TEXT];
    const time_t now = time(NULL);
    struct tm parts;

    gmtime_r(&now, &parts);
    strftime(when, sizeof(when), "%Y-%m-%d %H:%M UTC", &parts);
    table_count((double)page->steps, steps);
    fprintf(to, "<p class=\"sub\">%s &middot; %s step%s",
            page->failed  ? "Failed"
            : page->ended ? "Ended"
                          : "Running",
            steps, page->steps == 1 ? "" : "s");
    if (page->epoch > 0)
        fprintf(to, " &middot; epoch %" PRId64 " of %" PRId64, page->epoch, setup->epochs);
    if (setup->resumed) {
        table_count((double)setup->step, first);
        fprintf(to, " &middot; resumed after step %s", first);
    }
    fprintf(to, " &middot; %d rank%s &middot; written %s</p>\n", setup->world,
            setup->world == 1 ? "" : "s", when);
}

/* Writes the most important figures. */
static void page_tiles(const struct page *page, const struct balance_rank *sum, FILE *to)
{
    static const char *const names[] = {"Accuracy",       "Test loss",     "Samples per second",
                                        "Time of a step", "Communication", "Waiting"};
    enum { TILES = sizeof(names) / sizeof(names[0]) };
    const struct record_test *best = &page->best, *last = &page->last;
    const double total = bars_total(sum) * sum->steps;
    char value[TILES][TABLE_TEXT], below[TILES][TABLE_TEXT + 16], duration[TABLE_TEXT];

    for (int i = 0; i < TILES; i++) {
        strcpy(value[i], "&ndash;");
        strcpy(below[i], i < 2 ? "no test yet" : "no step yet");
    }
    if (last->count > 0) {
        snprintf(value[0], TABLE_TEXT, "%.2f %%",
                 100.0 * (double)last->correct / (double)last->count);
        snprintf(below[0], TABLE_TEXT, "best %.2f %%, epoch %" PRId64,
                 100.0 * (double)best->correct / (double)best->count, best->epoch);
        snprintf(value[1], TABLE_TEXT, isfinite(last->loss) ? "%.4f" : "not finite", last->loss);
        snprintf(below[1], TABLE_TEXT, "of %" PRId64 " samples", last->count);
    }
    if (page->steps > 0 && page->seconds > 0) {
        table_count((double)page->samples / page->seconds, value[2]);
        snprintf(below[2], TABLE_TEXT, "%.1f per rank",
                 (double)page->samples / page->seconds / page->setup->world);
        snprintf(value[3], TABLE_TEXT, "%.3g ms", 1e3 * page->seconds / (double)page->steps);
        table_duration(page->seconds, duration);
        snprintf(below[3], sizeof(below[3]), "%s in steps", duration);
    }
    if (total > 0) {
        snprintf(value[4], TABLE_TEXT, "%.1f %%", 100 * page->share);
        strcpy(below[4], "of the time, including waiting");
        snprintf(value[5], TABLE_TEXT, "%.1f %%", 100 * sum->seconds[BALANCE_WAITING] / total);
        strcpy(below[5], "of a step, for the slowest rank");
    }
    fputs("<div class=\"tiles\">\n", to);
    for (int i = 0; i < TILES; i++)
        fprintf(to, "<div class=\"tile\"><span>%s</span><b>%s</b><i>%s</i></div>\n", names[i],
                value[i], below[i]);
    fputs("</div>\n", to);
}

/* Writes a table of the parts of a step, as means over all ranks. */
static void page_parts(const struct balance_rank *sum, FILE *to)
{
    const double total = bars_total(sum);

    fputs("<table class=\"parts\"><tr><th>part</th><th class=\"n\">ms per step</th>"
          "<th class=\"n\">share</th></tr>\n",
          to);
    for (int i = 0; i < BALANCE_PARTS; i++) {
        const double part = sum->steps > 0 ? sum->seconds[i] / sum->steps : 0;

        fprintf(to,
                "<tr><td><span class=\"chip\" style=\"background:var(--%s)\"></span>%s</td>"
                "<td class=\"n\">%.3f</td><td class=\"n\">%.1f %%</td></tr>\n",
                bars_parts[i].class, bars_parts[i].name, part * 1e3,
                total > 0 ? 100 * part / total : 0);
    }
    fprintf(to,
            "<tr class=\"set\"><td>all</td><td class=\"n\">%.3f</td><td class=\"n\">%s</td></tr>"
            "</table>\n",
            total * 1e3, total > 0 ? "100.0 %" : "&ndash;");
}

/* Writes which rank is slowest, and by how much. */
static void page_slowest(const struct balance *balance, FILE *to)
{
    double sum = 0, most = 0;
    int slowest = 0;

    for (int rank = 0; rank < balance->world; rank++) {
        const double work = bars_work(&balance->ranks[rank]);

        sum += work;
        if (work > most)
            most = work, slowest = rank;
    }
    fputs("<p class=\"note\">", to);
    if (balance->world > BARS_MOST)
        fprintf(to, "The %d of %d ranks whose own work takes longest. ", BARS_MOST, balance->world);
    if (most > 0 && balance->world > 1)
        fprintf(to,
                "Rank %d has the most work of its own: %.3f ms per step, %.1f %% above the mean of "
                "%.3f ms.",
                slowest, most * 1e3, 100 * (most * balance->world / sum - 1),
                sum / balance->world * 1e3);
    fputs("</p>\n", to);
}

/* Writes a card with a table. note: text below the table, or NULL. */
static void page_facts(const char *heading, const struct record_fact *facts, int count,
                       const char *note, FILE *to)
{
    fprintf(to,
            "<section class=\"card wide\"><div class=\"head\"><h2>%s</h2></div>\n<div "
            "class=\"facts\">\n",
            heading);
    for (int i = 0; i < count; i++) {
        fprintf(to, "<div%s><span>", facts[i].changed ? " class=\"set\"" : "");
        markup_escape(facts[i].name, to);
        fputs("</span><b>", to);
        markup_escape(facts[i].value, to);
        fputs("</b></div>\n", to);
    }
    fputs("</div>\n", to);
    if (note)
        fprintf(to, "<p class=\"note\">%s</p>\n", note);
    fputs("</section>\n", to);
}

/* ---- style of the page, light and dark ---- */

static const char page_style[] =
    ":root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--edge:#e3e6eb;--ink:#15181d;"
    "--soft:#59616e;--faint:#8a929f;--grid:#e9ecf0;--axis:#aab1bc;--loss:#2a6fd1;--test:#d9480f;"
    "--acc:#0f8a5f;--rate:#6b54c6;--forward:#7fb0ee;--backward:#2a6fd1;--update:#17a673;"
    "--data:#e0a400;--communication:#d8433b;--waiting:#a88be0;--other:#b9bec7;--warn:#b42318}\n"
    "@media(prefers-color-scheme:dark){:root{--page:#101317;--card:#181c22;--edge:#2a3039;"
    "--ink:#eceff3;--soft:#a6aebb;--faint:#7b8492;--grid:#252b33;--axis:#4b5563;--loss:#5b9bf3;"
    "--test:#ff8a50;--acc:#3ecf95;--rate:#a390f5;--forward:#8dbbf5;--backward:#3f82e0;"
    "--update:#2bb884;--data:#e2ae2b;--communication:#ef6a62;--waiting:#8e74cc;--other:#5e6673;"
    "--warn:#ff8f85}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"
    "'Segoe UI',Roboto,'DejaVu Sans',sans-serif}\n"
    "main{max-width:1180px;margin:0 auto;padding:32px 20px 56px}\n"
    "h1{font-size:26px;line-height:1.2;margin:0;letter-spacing:-.01em}\n"
    "h2{font-size:16px;margin:0}\n"
    ".sub{color:var(--soft);margin:6px 0 22px}\n"
    ".warn{color:var(--warn);font-weight:600;margin:-10px 0 20px}\n"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(165px,1fr));gap:12px;"
    "margin-bottom:16px}\n"
    ".tile,.card{background:var(--card);border:1px solid var(--edge);border-radius:10px}\n"
    ".tile{padding:12px 16px}\n"
    ".tile b{display:block;font-size:24px;line-height:1.25;font-weight:650;letter-spacing:-.01em}\n"
    ".tile span{color:var(--soft);font-size:13px}\n"
    ".tile i{display:block;font-style:normal;color:var(--faint);font-size:12px}\n"
    ".two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(440px,100%),1fr));gap:16px;"
    "margin-bottom:16px}\n"
    ".card{padding:16px 18px 14px;min-width:0}\n"
    ".wide{margin-bottom:16px}\n"
    ".head{display:flex;flex-wrap:wrap;gap:4px 18px;align-items:baseline;"
    "justify-content:space-between;margin-bottom:8px}\n"
    ".key{display:flex;flex-wrap:wrap;gap:2px 14px;color:var(--soft);font-size:13px}\n"
    ".key span::before{content:'';display:inline-block;width:11px;height:11px;border-radius:3px;"
    "margin-right:6px;vertical-align:-1px;background:var(--c)}\n"
    ".note{color:var(--soft);font-size:13px;margin:8px 0 0}\n"
    "svg{display:block;width:100%;height:auto;overflow:visible}\n"
    ".topology{overflow-x:auto}\n"
    ".topology img{display:block;max-width:100%;height:auto}\n"
    "text{fill:var(--soft);font-family:inherit}\n"
    ".tick{font-size:12px;font-variant-numeric:tabular-nums}.label{font-size:12.5px}.small{font-"
    "size:9.5px}\n"
    ".none{font-size:15px;fill:var(--faint)}\n"
    ".grid{stroke:var(--grid)}.axis{stroke:var(--axis)}\n"
    "polyline{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}\n"
    ".loss{stroke:var(--loss)}.test{stroke:var(--test)}.acc{stroke:var(--acc)}"
    ".rate{stroke:var(--rate)}.lr{stroke:var(--data)}\n"
    ".loss-band,.test-band,.acc-band,.rate-band,.lr-band{opacity:.2}\n"
    ".loss-band,.loss-dot{fill:var(--loss)}.test-band,.test-dot{fill:var(--test)}"
    ".acc-band,.acc-dot{fill:var(--acc)}.rate-band,.rate-dot{fill:var(--rate)}"
    ".lr-band,.lr-dot{fill:var(--data)}\n"
    "circle{stroke:var(--card);stroke-width:1.5}.bad{fill:var(--warn);opacity:.28;stroke:none}\n"
    "rect{stroke:var(--card);stroke-width:1}\n"
    ".forward{fill:var(--forward)}.backward{fill:var(--backward)}.update{fill:var(--update)}"
    ".data{fill:var(--data)}.communication{fill:var(--communication)}.waiting{fill:var(--waiting)}"
    ".other{fill:var(--other)}\n"
    "table{border-collapse:collapse;width:100%;font-size:14px}\n"
    "th,td{text-align:left;padding:5px 10px 5px 0;border-bottom:1px solid var(--edge);"
    "vertical-align:top;overflow-wrap:anywhere}\n"
    "tr:last-child td{border-bottom:0}\n"
    "th{color:var(--soft);font-weight:500;font-size:13px}\n"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;padding-right:0}\n"
    "tr.set td{font-weight:600}\n"
    ".facts{columns:2 400px;column-gap:40px;font-size:14px}\n"
    ".facts div{display:flex;gap:14px;justify-content:space-between;padding:4px 0;"
    "break-inside:avoid;border-bottom:1px solid var(--edge)}\n"
    ".facts span{color:var(--soft);flex:none}.facts b{font-weight:400;text-align:right;min-width:0;"
    "overflow-wrap:anywhere}.facts .set b{font-weight:650}\n"
    ".parts .chip{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:8px;"
    "vertical-align:-1px}\n"
    "footer{color:var(--faint);font-size:13px;margin-top:20px}\n";

/* ---- the page ---- */

/*
 * Writes text in base64. The topology is embedded as a separate image so that its styles do not
 * affect the page.
 */
static void page_base64(const char *text, FILE *to)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    while (*text) {
        uint32_t bits = 0;
        int count = 0;

        for (int i = 0; i < 3; i++) {
            bits = bits << 8 | (uint8_t)*text;
            count += *text != '\0';
            text += *text != '\0';
        }
        for (int i = 0; i < 4; i++)
            fputc(i <= count ? digits[bits >> (18 - 6 * i) & 63] : '=', to);
    }
}

static void page_print(const struct page *page, FILE *to)
{
    const struct records_setup *setup = page->setup;
    const struct balance_rank sum = bars_sum(&page->balance);
    const struct chart charts[] = {
        {"Loss", "loss over the steps", "loss (mean cross-entropy)",
         .series = {{&page->loss, "training", "loss", false},
                    {&page->test_loss, "test", "test", true}}},
        {"Accuracy", "accuracy over the steps", "test accuracy (%)", .percent = true,
         .series = {{&page->accuracy, "test, after each epoch", "acc", true}}},
        {"Throughput", "samples per second over the steps", "samples / s, all ranks",
         .inverse = true, .series = {{&page->pace, "in steps, without tests", "rate", false}}},
        {"Learning rate", "learning rate over the steps", "learning rate",
         .series = {{&page->lr, "of the optimizer", "lr", false}}},
    };
    struct record_fact facts[HOST_FACTS];
    struct plot_axis x;

    fprintf(to,
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
            "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n%s"
            "<title>%s: report</title>\n<style>\n%s</style></head>\n<body><main>\n<h1>%s</h1>\n",
            page->ended ? "" : "<meta http-equiv=\"refresh\" content=\"30\">\n", setup->program,
            page_style, setup->program);
    page_subtitle(page, to);
    if (page->failed) {
        fputs("<p class=\"warn\">The training failed: ", to);
        markup_escape(page->failed, to);
        fputs("</p>\n", to);
    }
    if (page->bad)
        fprintf(to,
                "<p class=\"warn\">The loss was not a finite number in %" PRId64
                " step%s, first in "
                "step %" PRId64 ".</p>\n",
                page->bad, page->bad == 1 ? "" : "s", page->bad_step);
    page_tiles(page, &sum, to);
    fputs("<div class=\"two\">\n", to);
    for (int i = 0; i < 4; i++)
        chart_draw(&charts[i], &page->loss, to);
    fputs("</div>\n<section class=\"card wide\"><div class=\"head\">"
          "<h2>Where the time of a step goes</h2></div>\n",
          to);
    x = bars_begin(bars_total(&sum), 44, "where the time of a step goes, mean of the ranks", to);
    bars_draw(&sum, setup->world == 1 ? "rank 0" : "mean", &x, 4, 36, to);
    fputs("</svg>\n", to);
    page_parts(&sum, to);
    fputs("</section>\n<section class=\"card wide\"><div class=\"head\"><h2>Rank by rank</h2>"
          "<div class=\"key\">",
          to);
    for (int i = 0; i < BALANCE_PARTS; i++)
        fprintf(to, "<span style=\"--c:var(--%s)\">%s</span>", bars_parts[i].class,
                bars_parts[i].name);
    fputs("</div></div>\n", to);
    bars_ranks(&page->balance, to);
    page_slowest(&page->balance, to);
    fputs("</section>\n<section class=\"card wide\"><div class=\"head\">"
          "<h2>Where the ranks are</h2></div>\n",
          to);
    if (page->topology) {
        fputs("<div class=\"topology\"><img alt=\"machines, cores and ranks\" "
              "src=\"data:image/svg+xml;base64,",
              to);
        page_base64(page->topology, to);
        fputs("\"></div>\n", to);
    } else {
        fputs("<p class=\"note\">Not known yet.</p>\n", to);
    }
    fputs("</section>\n", to);
    page_facts("Machine", facts, host_facts(page->group, facts), NULL, to);
    page_facts("Settings", page->setup->settings, page->setup->setting_count,
               "Bold: not the default.", to);
    fputs("<footer>Written by libdist ", to);
    markup_escape(dist_version(), to);
    fputs(". Bands show the minimum and maximum of the steps that share a point.</footer>\n"
          "</main></body></html>\n",
          to);
}

int page_write(const struct page *page, const char *path)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    int result;

    if (to)
        page_print(page, to);
    result =
        to && fclose(to) == 0 ? file_replace(path, text, size, NULL, 0) : failure("out of memory");
    free(text);
    return result;
}
