/* SPDX-License-Identifier: BSD-3-Clause */
/* --report: what the page says, from its top to its end. */
#include "page.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "bars.h"
#include "chart.h"
#include "page_tables.h"
#include "svg.h"
#include "tools/common/markup.h"
#include "train/failure.h"
#include "train/file.h"

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

static void page_time(const struct page *page, FILE *to)
{
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

static void page_topology(const struct page *page, FILE *to)
{
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
}

static void page_top(const struct page *page, FILE *to)
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
}

void page_print(const struct page *page, FILE *to)
{
    page_top(page, to);
    page_curves(page, to);
    page_time(page, to);
    page_topology(page, to);
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
