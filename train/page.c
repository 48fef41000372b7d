/* SPDX-License-Identifier: BSD-3-Clause */
/* --report: what the page says, from its top to its end. */
#include "page.h"

#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <time.h>

#include "chart.h"
#include "failure.h"
#include "file.h"
#include "tools/common/text.h"

/* ---- the machine and the job ---- */

static void host_add(struct record_fact *facts, int *count, const char *name, const char *value)
{
    struct record_fact *fact = &facts[*count];

    if (!*value)
        return;
    *fact = (struct record_fact){.changed = false};
    snprintf(fact->name, sizeof(fact->name), "%s", name);
    snprintf(fact->value, sizeof(fact->value), "%.*s", (int)sizeof(fact->value) - 1, value);
    (*count)++;
}

int host_facts(dist_group *group, struct record_fact facts[HOST_FACTS])
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256], text[256] = "";
    struct utsname name;
    struct sysinfo info;
    cpu_set_t set;
    int count = 0;

    if (uname(&name) == 0)
        host_add(facts, &count, "host of rank 0", name.nodename);
    /* "AMD EPYC 9B14": the first that the kernel tells of. */
    while (file && fgets(line, sizeof(line), file) && !*text) {
        const char *at = strchr(line, ':');

        if (at && strncmp(line, "model name", 10) == 0)
            snprintf(text, sizeof(text), "%.*s", (int)strcspn(at + 2, "\n"), at + 2);
    }
    if (file)
        fclose(file);
    host_add(facts, &count, "processor", text);
    snprintf(text, sizeof(text), "%d",
             sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0);
    host_add(facts, &count, "CPUs that rank 0 may use", text);
    if (sysinfo(&info) == 0) {
        snprintf(text, sizeof(text), "%.1f GiB",
                 (double)info.totalram * info.mem_unit / (1024.0 * 1024 * 1024));
        host_add(facts, &count, "memory", text);
    }
    snprintf(text, sizeof(text), "%s %s, %s", name.sysname, name.release, name.machine);
    host_add(facts, &count, "system", text);
    host_add(facts, &count, "libdist", dist_version());
    if (group) {
        host_add(facts, &count, "backend", dist_get_backend(group));
        snprintf(text, sizeof(text), "%d", dist_get_world_size(group));
        host_add(facts, &count, "ranks", text);
    }
    return count;
}

/* ---- the words and figures of the page ---- */

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

/* What the training is, and how far. */
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

/* The figures that matter most. */
static void page_tiles(const struct page *page, FILE *to)
{
    const struct record_test *best = &page->best, *last = &page->last;
    const struct balance_rank sum = bars_sum(&page->balance);
    const double total = bars_total(&sum) * sum.steps;
    char value[TABLE_TEXT], below[TABLE_TEXT + 16], duration[TABLE_TEXT];

    fputs("<div class=\"tiles\">\n", to);
    if (last->count == 0) {
        table_tile("Accuracy", "&ndash;", "no test yet", to);
        table_tile("Test loss", "&ndash;", "no test yet", to);
    } else {
        snprintf(value, sizeof(value), "%.2f %%",
                 100.0 * (double)last->correct / (double)last->count);
        snprintf(below, sizeof(below), "best %.2f %%, epoch %" PRId64,
                 100.0 * (double)best->correct / (double)best->count, best->epoch);
        table_tile("Accuracy", value, below, to);
        snprintf(value, sizeof(value), isfinite(last->loss) ? "%.4f" : "not finite", last->loss);
        snprintf(below, sizeof(below), "of %" PRId64 " samples", last->count);
        table_tile("Test loss", value, below, to);
    }
    if (page->steps == 0 || page->seconds <= 0) {
        table_tile("Samples a second", "&ndash;", "no step yet", to);
        table_tile("Time of a step", "&ndash;", "no step yet", to);
    } else {
        table_count((double)page->samples / page->seconds, value);
        snprintf(below, sizeof(below), "%.1f a rank",
                 (double)page->samples / page->seconds / page->setup->world);
        table_tile("Samples a second", value, below, to);
        snprintf(value, sizeof(value), "%.3g ms", 1e3 * page->seconds / (double)page->steps);
        table_duration(page->seconds, duration);
        snprintf(below, sizeof(below), "%s in steps", duration);
        table_tile("Time of a step", value, below, to);
    }
    if (total <= 0) {
        table_tile("Communication", "&ndash;", "no step yet", to);
        table_tile("Waiting", "&ndash;", "no step yet", to);
    } else {
        snprintf(value, sizeof(value), "%.1f %%", 100 * page->share);
        table_tile("Communication", value, "of the time, waiting included", to);
        snprintf(value, sizeof(value), "%.1f %%", 100 * sum.seconds[BALANCE_WAITING] / total);
        table_tile("Waiting", value, "of a step, for the slowest rank", to);
    }
    fputs("</div>\n", to);
}

/* The parts of a step in figures, the mean of all ranks. */
static void page_parts(const struct balance *balance, FILE *to)
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

/* Which rank is slowest, and by how much. */
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
                "Rank %d has the most work of its own: %.3f ms a step, %.1f %% above the mean of "
                "%.3f ms.",
                slowest, most * 1e3, 100 * (most * balance->world / sum - 1),
                sum / balance->world * 1e3);
    fputs("</p>\n", to);
}

/* A card with a table. note: below it, or NULL. */
static void page_facts(const char *heading, const struct record_fact *facts, int count,
                       const char *note, FILE *to)
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

/* ---- how the page looks, in light and in dark ---- */

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

/* A card: heading, the legend of what is drawn, then the chart. */
static void page_chart(const char *heading, const struct chart *chart, FILE *to)
{
    fprintf(to, "<section class=\"card\"><div class=\"head\"><h2>%s</h2><div class=\"key\">",
            heading);
    for (int i = 0; i < chart->series_count; i++)
        fprintf(to, "<span style=\"--c:var(--%s)\">%s</span>",
                chart->series[i].class[0] == 'l' && chart->series[i].class[1] == 'r'
                    ? "data"
                    : chart->series[i].class,
                chart->series[i].name);
    fputs("</div></div>\n", to);
    chart_draw(chart, to);
    fputs("</section>\n", to);
}

static void page_curves(const struct page *page, FILE *to)
{
    const struct chart loss = {.title = "loss over the steps",
                               .x = "step",
                               .y = "loss (mean cross-entropy)",
                               .scale = 1,
                               .from_zero = true,
                               .series_count = 2,
                               .series = {{&page->loss, "training", "loss", false},
                                          {&page->test_loss, "test", "test", true}}};
    const struct chart accuracy = {
        .title = "accuracy over the steps",
        .x = "step",
        .y = "test accuracy (%)",
        .scale = 100,
        .ceiling = 100,
        .steps = &page->loss,
        .series_count = 1,
        .series = {{&page->accuracy, "test, after each epoch", "acc", true}}};
    const struct chart rate = {.title = "samples a second over the steps",
                               .x = "step",
                               .y = "samples / s, all ranks",
                               .inverse = true,
                               .scale = 1,
                               .from_zero = true,
                               .series_count = 1,
                               .series = {{&page->pace, "in steps, without tests", "rate", false}}};
    const struct chart lr = {.title = "learning rate over the steps",
                             .x = "step",
                             .y = "learning rate",
                             .scale = 1,
                             .from_zero = true,
                             .series_count = 1,
                             .series = {{&page->lr, "of the optimizer", "lr", false}}};

    fputs("<div class=\"two\">\n", to);
    page_chart("Loss", &loss, to);
    page_chart("Accuracy", &accuracy, to);
    page_chart("Throughput", &rate, to);
    page_chart("Learning rate", &lr, to);
    fputs("</div>\n", to);
}

/* Sixteen-bit groups of four characters. As a picture of its own it keeps its styles to itself. */
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

void page_print(const struct page *page, FILE *to)
{
    const struct records_setup *setup = page->setup;

    fprintf(to,
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
            "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n%s"
            "<title>%s: report</title>\n<style>\n%s</style></head>\n<body><main>\n",
            page->ended ? "" : "<meta http-equiv=\"refresh\" content=\"30\">\n", setup->program,
            page_style);
    fprintf(to, "<h1>%s</h1>\n", setup->program);
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
    page_tiles(page, to);
    page_curves(page, to);
    fputs("<section class=\"card wide\"><div class=\"head\"><h2>Where the time of a step goes</h2>"
          "</div>\n",
          to);
    bars_mean(&page->balance, to);
    page_parts(&page->balance, to);
    fputs("</section>\n<section class=\"card wide\"><div class=\"head\"><h2>Rank by rank</h2>"
          "<div class=\"key\">",
          to);
    for (int i = 0; i < BALANCE_PARTS; i++)
        fprintf(to, "<span style=\"--c:var(--%s)\">%s</span>", bars_class((enum balance_part)i),
                bars_name((enum balance_part)i));
    fputs("</div></div>\n", to);
    bars_ranks(&page->balance, to);
    page_slowest(&page->balance, to);
    fputs("</section>\n", to);
    fputs("<section class=\"card wide\"><div class=\"head\"><h2>Where the ranks are</h2></div>\n",
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
    page_facts("Machine", page->facts, page->fact_count, NULL, to);
    page_facts("Settings", page->setup->settings, page->setup->setting_count,
               "Bold: not the default.", to);
    fputs("<footer>Written by libdist ", to);
    markup_escape(dist_version(), to);
    fputs(". Bands show the smallest and the largest of the steps that share a place.</footer>\n"
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
