/* SPDX-License-Identifier: BSD-3-Clause */
/* The report: any run results in a page of limited size with finite numbers only. */
#include "unit.h"

#include <math.h>

#include "tools/common/plot.h"
#include "train/page.h"

static int count_of(const char *text, const char *part)
{
    int count = 0;

    for (; (text = strstr(text, part)); text++)
        count++;
    return count;
}

/* ---- numbers on axes ---- */

static void check_number(double value, double tick, const char *expected)
{
    char text[PLOT_NUMBER];

    assert_string_equal(plot_number(value, tick, text), expected);
}

static void test_numbers_on_axes_are_short(void **state)
{
    (void)state;
    assert_true(plot_tick(0, 10, 5) == 2);
    assert_true(fabs(plot_tick(0, 0.3, 5) - 0.05) < 1e-12);
    assert_true(plot_tick(3, 3, 5) == 1);
    check_number(0, 0.1, "0");
    check_number(-1e-17, 0.1, "0");
    check_number(0.3, 0.1, "0.3");
    check_number(2000, 1000, "2000");
    check_number(20000, 5000, "20k");
    check_number(1.2e6, 2e5, "1.2M");
    check_number(98.5, 0.5, "98.5");
}

/* ---- pages ---- */

/* Returns the page's text; the caller frees it. */
static char *print(const struct page *page)
{
    char *text = NULL;
    size_t size = 0;
    FILE *from;

    assert_int_equal(page_write(page, "page.html"), 0);
    from = fopen("page.html", "r");
    assert_non_null(from);
    assert_true(getdelim(&text, &size, '\0', from) > 0);
    fclose(from);
    return text;
}

/* Checks that the page is complete, loads nothing, and has no numbers that a browser cannot
 * draw. */
static void check_page(const struct page *page)
{
    char *text = print(page);
    const char *end = strstr(text, "</html>");

    assert_non_null(end);
    assert_true(strlen(text) < 2000000);
    assert_int_equal(count_of(text, "<svg"), count_of(text, "</svg>"));
    assert_int_equal(count_of(text, "<section"), count_of(text, "</section>"));
    assert_int_equal(count_of(text, "<g"), count_of(text, "</g>"));
    assert_null(strstr(text, "http://"));
    assert_null(strstr(text, "https://"));
    assert_null(strstr(text, "<script"));
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "\"inf"));
    assert_null(strstr(text, " inf"));
    free(text);
}

static struct page *make_page(const struct records_setup *setup)
{
    struct page *page = calloc(1, sizeof(*page));

    assert_non_null(page);
    page->setup = setup;
    page->balance.world = setup->world;
    page->balance.ranks = calloc((size_t)setup->world, sizeof(*page->balance.ranks));
    assert_non_null(page->balance.ranks);
    for (int rank = 0; rank < setup->world && setup->step >= 0; rank++) {
        for (int i = 0; i < BALANCE_PARTS; i++)
            page->balance.ranks[rank].seconds[i] = 0.001 * (i + 1) + 0.0001 * rank;
        page->balance.ranks[rank].steps = 2;
    }
    return page;
}

static void free_page(struct page *page)
{
    free(page->balance.ranks);
    free(page->topology);
    free(page);
}

static void test_a_long_history_is_condensed(void **state)
{
    const struct records_setup setup = {.program = "p", .world = 1};
    struct page *page = make_page(&setup);
    const struct history *history = &page->loss;
    int64_t points = 0, bad = 0;
    double sum = 0, most = 0, last = 0;

    (void)state;
    for (int i = 1; i <= 1000000; i++)
        page_add_step(page, &(struct record_step){.step = i, .samples = 1},
                      i % 1000 == 0 ? (double)NAN : i);
    assert_true(history->count > HISTORY_BINS / 2 && history->count <= HISTORY_BINS);
    for (int i = 0; i < history->count; i++) {
        const struct history_bin *bin = &history->bins[i];

        assert_true(bin->first > last && bin->last >= bin->first);
        last = bin->last;
        points += bin->finite;
        bad += bin->bad;
        sum += bin->sum;
        most = fmax(most, bin->most);
    }
    assert_int_equal(points, 999000);
    assert_int_equal(bad, 1000);
    assert_true(sum == 1e6 * 1000001 / 2 - 1000.0 * 1000 * 1001 / 2);
    assert_true(most == 999999 && last == 1000000);
    free_page(page);
}

static void add_steps(struct page *page, int64_t steps, double loss)
{
    for (int64_t i = 1; i <= steps; i++) {
        const struct record_step step = {
            .step = i, .epoch = 1, .samples = 64, .lr = 1, .seconds = 0.01};

        page_add_step(page, &step, loss);
    }
}

static void test_a_page_without_steps(void **state)
{
    const struct records_setup setup = {.program = "p", .world = 1, .step = -1};
    struct page *page = make_page(&setup);
    char *text = print(page);

    (void)state;
    assert_int_equal(count_of(text, ">no values<"), 4);
    assert_non_null(strstr(text, "http-equiv=\"refresh\""));
    free(text);
    check_page(page);
    free_page(page);
}

static void test_pages_of_any_number_of_steps(void **state)
{
    static const int64_t counts[] = {1, 2, 1000, 1000000};
    const struct records_setup setup = {.program = "p", .world = 2, .epochs = 1};

    (void)state;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        const struct record_test test = {counts[i], 1, 0.5, 3, 4, 0};
        struct page *page = make_page(&setup);

        add_steps(page, counts[i], 0.25);
        page_add_test(page, &test);
        check_page(page);
        free_page(page);
    }
}

/* Losses that are not finite, or extremely large or small. */
static void test_pages_with_losses_that_are_not_finite(void **state)
{
    static const double losses[] = {NAN, INFINITY, -INFINITY, 0, -1, 1e300, 1e-300};
    const struct records_setup setup = {.program = "p", .world = 1, .epochs = 1};

    (void)state;
    for (size_t i = 0; i < sizeof(losses) / sizeof(losses[0]); i++) {
        const struct record_test test = {3, 1, losses[i], 0, 4, 0};
        struct page *page = make_page(&setup);
        char *text;

        add_steps(page, 3, losses[i]);
        page_add_test(page, &test);
        check_page(page);
        text = print(page);
        assert_int_equal(strstr(text, "not a finite number in 3 steps, first in step 1") != NULL,
                         !isfinite(losses[i]));
        free(text);
        free_page(page);
    }
}

static void test_pages_of_any_number_of_ranks(void **state)
{
    static const int worlds[] = {1, 3, 64, 500};

    (void)state;
    for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
        const struct records_setup setup = {.program = "p", .world = worlds[i]};
        struct page *page = make_page(&setup);
        const int rows = worlds[i] < BARS_MOST ? worlds[i] : BARS_MOST;
        char *text = print(page);

        assert_int_equal(count_of(text, ", forward: "), rows + 1);
        /* The last rank has the most work of its own. */
        if (worlds[i] > 1)
            assert_non_null(strstr(text, "has the most work of its own"));
        assert_int_equal(strstr(text, "The 128 of 500 ranks") != NULL, worlds[i] == 500);
        free(text);
        check_page(page);
        free_page(page);
    }
}

/* Markup in names that users choose is escaped. */
static void test_names_are_escaped(void **state)
{
    const struct record_fact facts[] = {{"data", "<b>&\"'", true}};
    const struct records_setup setup = {
        .program = "p", .world = 1, .settings = facts, .setting_count = 1};
    struct page *page = make_page(&setup);
    char *text;

    (void)state;
    page->topology = strdup("<svg>four</svg>");
    page->ended = true;
    text = print(page);
    assert_non_null(strstr(text, "&lt;b&gt;&amp;&quot;&#39;"));
    assert_non_null(strstr(text, "base64,PHN2Zz5mb3VyPC9zdmc+\""));
    assert_null(strstr(text, "http-equiv"));
    assert_non_null(strstr(text, ">Ended"));
    free(text);
    page->failed = "rank 0: <no> number";
    text = print(page);
    assert_non_null(strstr(text, ">Failed"));
    assert_non_null(strstr(text, "The training failed: rank 0: &lt;no&gt; number<"));
    free(text);
    free_page(page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_long_history_is_condensed),
        cmocka_unit_test(test_numbers_on_axes_are_short),
        cmocka_unit_test(test_a_page_without_steps),
        cmocka_unit_test(test_pages_of_any_number_of_steps),
        cmocka_unit_test(test_pages_with_losses_that_are_not_finite),
        cmocka_unit_test(test_pages_of_any_number_of_ranks),
        cmocka_unit_test(test_names_are_escaped),
    };

    return cmocka_run_group_tests_name("train/records/page", tests, unit_enter_folder,
                                       unit_leave_folder);
}
