/* SPDX-License-Identifier: BSD-3-Clause */
/* The page of curves: what must be on it, and where on the plots. */
#include "bench/html.h"

#include "bench/html_plot.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The whole of what write() wrote, to be freed. */
static char *text_of(void (*write)(const void *what, FILE *to), const void *what)
{
    static char *text;
    static size_t length;
    FILE *to = open_memstream(&text, &length);

    write(what, to);
    fclose(to);
    return text;
}

static int occurrences(const char *text, const char *word)
{
    int n = 0;

    for (; (text = strstr(text, word)); text += strlen(word))
        n++;
    return n;
}

static void write_plot(const void *plot, FILE *to)
{
    plot_write(plot, to);
}

static void test_curves(void **state)
{
    static const double x[] = {1024, 2048, 4096, 8192}, falling[] = {4e6, 1e6, 2e5, 1e3},
                        broken[] = {1e3, 0, 1e6, 1e6};
    struct plot_series series[] = {{"a < b", 0, 0, x, falling, 4}, {"gap", 1, 1, x, broken, 4}};
    struct plot plot = {PLOT_TIME, "A & B", series, 2};
    double at[4][2];
    char *text, *line;

    (void)state;
    text = text_of(write_plot, &plot);
    assert_non_null(strstr(text, "A &amp; B"));
    assert_null(strstr(text, "a < b"));
    assert_int_equal(occurrences(text, "<title>a &lt; b, "), 4);
    assert_int_equal(occurrences(text, "<title>gap, "), 3);
    assert_non_null(strstr(text, "<title>gap, 8 KiB: 1 ms</title>"));
    line = strstr(text, "class=\"line s0\" d=\"M");
    assert_non_null(line);
    assert_int_equal(sscanf(line, "class=\"line s0\" d=\"M%lf %lfL%lf %lfL%lf %lfL%lf %lf",
                            &at[0][0], &at[0][1], &at[1][0], &at[1][1], &at[2][0], &at[2][1],
                            &at[3][0], &at[3][1]),
                     8);
    /* Sizes are a power of two apart, so the points are evenly spaced, and times fall: y grows. */
    for (int i = 1; i < 4; i++) {
        assert_true(at[i][1] > at[i - 1][1]);
        assert_true(fabs(at[i][0] - at[i - 1][0] - (at[1][0] - at[0][0])) < 0.2);
        assert_true(at[i][0] > at[i - 1][0]);
    }
    line = strstr(text, "class=\"line s1 bound\" d=\"M");
    assert_non_null(line);
    *strchr(line, '>') = '\0';
    assert_int_equal(occurrences(line, "M"), 2);
    free(text);
}

static void test_nothing_to_draw(void **state)
{
    static const double x[] = {0}, y[] = {5};
    struct plot_series series = {"barrier", 0, 0, x, y, 1};
    struct plot plot = {PLOT_TIME, "one point", &series, 1};
    char *text = text_of(write_plot, &plot);

    (void)state;
    assert_string_equal(text, "");
    free(text);
}

static void write_page(const void *result, FILE *to)
{
    assert_int_equal(html_write(result, to), 0);
}

/* Two contestants, two sizes, one time missing. */
static struct result *small_result(void)
{
    char *words[] = {"dist_bench", "<all_reduce>"};
    struct result *result = result_new(2, 2, words);

    assert_non_null(result);
    assert_int_equal(result_add_contestant(result, "gloo", false), 0);
    assert_int_equal(result_add_contestant(result, "limit", true), 0);
    for (size_t bytes = 2048; bytes >= 1024; bytes /= 2) {
        struct result_point like = {.collective = "all_reduce",
                                    .dtype = "float32",
                                    .op = "sum",
                                    .root = -1,
                                    .bytes = bytes,
                                    .window = 1};
        struct result_point *point = result_add_point(result, &like);

        point->times[0].measured = true;
        point->times[0].median = (double)bytes;
        point->times[1].measured = bytes > 1024;
        point->times[1].median = 1024;
    }
    result->points[1].times[1].reason = strdup("too \"slow\"");
    return result;
}

static void test_page(void **state)
{
    struct result *result = small_result();
    char *text = text_of(write_page, result);

    (void)state;
    assert_non_null(strstr(text, "&lt;all_reduce&gt;"));
    assert_non_null(strstr(text, "too &quot;slow&quot;"));
    assert_non_null(strstr(text, "2.05 µs"));
    assert_non_null(strstr(text, "&times;0.5<"));
    /* Rows go by size, whatever the order of measuring. */
    assert_true(strstr(text, "<tr><td>1 KiB") < strstr(text, "<tr><td>2 KiB"));
    assert_int_equal(occurrences(text, "<h2>"), 1);
    assert_int_equal(occurrences(text, "<svg viewBox"), 3);
    assert_null(strstr(text, "src="));
    assert_null(strstr(text, "href="));
    free(text);
    result_free(result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_curves),
        cmocka_unit_test(test_nothing_to_draw),
        cmocka_unit_test(test_page),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
