/* SPDX-License-Identifier: BSD-3-Clause */
/* The words and figures of the page. */
#include "page_tables.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "bars.h"
#include "svg.h"
#include "tools/common/text.h"

enum { TABLE_TEXT = 96 };

/* "12 s", "3 min 20 s", "5 h 02 min". */
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

/* "1 234 567", in groups that do not break. */
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

static void table_tile(const char *name, const char *value, const char *below, FILE *to)
{
    fprintf(to, "<div class=\"tile\"><span>%s</span><b>%s</b><i>%s</i></div>\n", name, value,
            below);
}

void page_subtitle(const struct page *page, FILE *to)
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
                          : "Under way",
            steps, page->steps == 1 ? "" : "s");
    if (page->epoch > 0)
        fprintf(to, " &middot; epoch %" PRId64 " of %" PRId64, page->epoch, setup->epochs);
    if (setup->resumed) {
        table_count((double)setup->step, first);
        fprintf(to, " &middot; went on after step %s", first);
    }
    fprintf(to, " &middot; %d rank%s &middot; written %s</p>\n", setup->world,
            setup->world == 1 ? "" : "s", when);
}

static void table_tests(const struct page *page, FILE *to)
{
    const struct record_test *best = &page->best, *last = &page->last;
    char value[TABLE_TEXT], below[TABLE_TEXT];

    if (last->count == 0) {
        table_tile("Accuracy", "&ndash;", "no test yet", to);
        table_tile("Test loss", "&ndash;", "no test yet", to);
        return;
    }
    snprintf(value, sizeof(value), "%.2f %%", 100.0 * (double)last->correct / (double)last->count);
    snprintf(below, sizeof(below), "best %.2f %%, epoch %" PRId64,
             100.0 * (double)best->correct / (double)best->count, best->epoch);
    table_tile("Accuracy", value, below, to);
    if (isfinite(last->loss))
        snprintf(value, sizeof(value), "%.4f", last->loss);
    else
        snprintf(value, sizeof(value), "not finite");
    snprintf(below, sizeof(below), "of %" PRId64 " samples", last->count);
    table_tile("Test loss", value, below, to);
}

static void table_speed(const struct page *page, FILE *to)
{
    char value[TABLE_TEXT], below[TABLE_TEXT + 16], time_text[TABLE_TEXT];

    if (page->steps == 0 || page->seconds <= 0) {
        table_tile("Samples a second", "&ndash;", "no step yet", to);
        table_tile("Time of a step", "&ndash;", "no step yet", to);
        return;
    }
    table_count((double)page->samples / page->seconds, value);
    snprintf(below, sizeof(below), "%.1f a rank",
             (double)page->samples / page->seconds / page->setup->world);
    table_tile("Samples a second", value, below, to);
    snprintf(value, sizeof(value), "%.3g ms", 1e3 * page->seconds / (double)page->steps);
    table_duration(page->seconds, time_text);
    snprintf(below, sizeof(below), "%s in steps", time_text);
    table_tile("Time of a step", value, below, to);
}

static void table_shares(const struct page *page, FILE *to)
{
    const struct balance_rank sum = bars_sum(&page->balance);
    const double total = bars_total(&sum) * sum.steps;
    char value[TABLE_TEXT];

    if (total <= 0) {
        table_tile("Communication", "&ndash;", "no step yet", to);
        table_tile("Waiting", "&ndash;", "no step yet", to);
        return;
    }
    snprintf(value, sizeof(value), "%.1f %%", 100 * page->share);
    table_tile("Communication", value, "of the time, waiting included", to);
    snprintf(value, sizeof(value), "%.1f %%", 100 * sum.seconds[BALANCE_WAITING] / total);
    table_tile("Waiting", value, "of a step, for the slowest rank", to);
}

void page_tiles(const struct page *page, FILE *to)
{
    fputs("<div class=\"tiles\">\n", to);
    table_tests(page, to);
    table_speed(page, to);
    table_shares(page, to);
    fputs("</div>\n", to);
}

void page_parts(const struct balance *balance, FILE *to)
{
    const struct balance_rank sum = bars_sum(balance);
    const double total = bars_total(&sum);

    fputs("<table class=\"parts\"><tr><th>part</th><th class=\"n\">ms a step</th>"
          "<th class=\"n\">share</th></tr>\n",
          to);
    for (int i = 0; i < BALANCE_PARTS; i++) {
        const double part = sum.steps > 0 ? sum.seconds[i] / sum.steps : 0;

        fprintf(to,
                "<tr><td><span class=\"chip\" style=\"background:var(--%s)\"></span>%s</td>"
                "<td class=\"n\">%.3f</td><td class=\"n\">%.1f %%</td></tr>\n",
                bars_class((enum balance_part)i), bars_name((enum balance_part)i), part * 1e3,
                total > 0 ? 100 * part / total : 0);
    }
    fprintf(to,
            "<tr class=\"set\"><td>all</td><td class=\"n\">%.3f</td><td class=\"n\">%s</td></tr>"
            "</table>\n",
            total * 1e3, total > 0 ? "100.0 %" : "&ndash;");
}

void page_slowest(const struct balance *balance, FILE *to)
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
                "Rank %d has the most work of its own: %.3f ms a step, %.1f %% above the mean of "
                "%.3f ms.",
                slowest, most * 1e3, 100 * (most * balance->world / sum - 1),
                sum / balance->world * 1e3);
    fputs("</p>\n", to);
}

void page_facts(const char *heading, const struct record_fact *facts, int count, const char *note,
                FILE *to)
{
    fprintf(to, "<section class=\"card wide\"><div class=\"head\"><h2>%s</h2></div>\n", heading);
    fputs("<div class=\"facts\">\n", to);
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
