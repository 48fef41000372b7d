/* SPDX-License-Identifier: BSD-3-Clause */
/* The HTML page and the SVG of curves: their contents, and the coordinates of the plots. */
#include "bench/report.h"
#include "tools/common/plot.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Returns the complete output of write(); the caller frees it. */
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
    plot_draw(plot, to);
}

static void test_curves_are_drawn(void **state)
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
    /* The sizes are powers of 2, so the points are evenly spaced; the times decrease, so y
     * increases. */
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

static void test_a_single_point_is_not_drawn(void **state)
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

/* Two libraries, two sizes, one missing time. */
static struct result *small_result(void)
{
    char *words[] = {"dist_bench", "<all_reduce>"};
    struct result *result = result_new(2, 2, words);

    assert_non_null(result);
    assert_int_equal(result_add_library(result, "gloo", false), 0);
    assert_int_equal(result_add_library(result, "limit", true), 0);
    for (size_t bytes = 2048; bytes >= 1024; bytes /= 2) {
        struct result_measurement like = {.collective = "all_reduce",
                                          .dtype = "float32",
                                          .op = "sum",
                                          .root = -1,
                                          .bytes = bytes,
                                          .window = 1};
        struct result_measurement *measurement = result_add_measurement(result, &like);

        measurement->times[0].measured = true;
        measurement->times[0].median = (double)bytes;
        measurement->times[1].measured = bytes > 1024;
        measurement->times[1].median = 1024;
    }
    result->measurements[1].times[1].reason = strdup("too \"slow\"");
    return result;
}

static void test_a_page_shows_all_results(void **state)
{
    struct result *result = small_result();
    char *text = text_of(write_page, result);

    (void)state;
    assert_non_null(strstr(text, "&lt;all_reduce&gt;"));
    assert_non_null(strstr(text, "too &quot;slow&quot;"));
    assert_non_null(strstr(text, "2.05 µs"));
    assert_non_null(strstr(text, "&times;0.5<"));
    /* Rows are sorted by size, whatever the order of the measurements. */
    assert_true(strstr(text, "<tr><td>1 KiB") < strstr(text, "<tr><td>2 KiB"));
    assert_int_equal(occurrences(text, "<h2>"), 1);
    assert_int_equal(occurrences(text, "<svg viewBox"), 3);
    assert_null(strstr(text, "src="));
    assert_null(strstr(text, "href="));
    free(text);
    result_free(result);
}

static void write_picture(const void *result, FILE *to)
{
    assert_int_equal(svg_write(result, to), 0);
}

/* Returns the result of csv_read for this text; failure_p as there. */
static struct result *read_text(const char *text, const char **failure_p)
{
    char name[] = "/tmp/test_html.XXXXXX";
    int file = mkstemp(name);
    struct result *result;

    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), strlen(text));
    close(file);
    result = csv_read(name, failure_p);
    unlink(name);
    return result;
}

#define CSV_HEAD "collective,size,dtype,op,root,in_place,ranks,more,contestant,time_us,status\n"

static void test_a_picture_is_drawn_from_CSV(void **state)
{
    const char *failure;
    struct result *result = read_text(CSV_HEAD "all_reduce,8,float32,sum,-1,1,2,,a<b,1.5,right\n"
                                               "all_reduce,8,float32,sum,-1,1,2,,limit,,missing\n"
                                               "all_reduce,16,float32,sum,-1,1,2,,a<b,2.5,right\n"
                                               "all_reduce,16,float32,sum,-1,1,2,,limit,5,right\n"
                                               "broadcast,8,int8,-,1,0,2,,a<b,3,right\n",
                                      &failure);
    char *text;

    (void)state;
    assert_non_null(result);
    assert_int_equal(result->library_count, 2);
    assert_int_equal(result->measurement_count, 3);
    assert_true(result->libraries[1].limit && !result->libraries[0].limit);
    assert_true(result->measurements[0].times[0].median == 1500 &&
                !result->measurements[0].times[1].measured);
    assert_true(result->measurements[2].times[0].measured &&
                !result->measurements[2].times[1].measured);
    text = text_of(write_picture, result);
    assert_int_equal(strncmp(text, "<svg xmlns=\"http://www.w3.org/2000/svg\"", 39), 0);
    assert_int_equal(occurrences(text, "<svg"), 1);
    assert_non_null(strstr(text, ">all_reduce, float32 sum, in place, 2 ranks<"));
    assert_non_null(strstr(text, ">broadcast, int8, root 1, 2 ranks<"));
    assert_non_null(strstr(text, "<title>limit, 16 B: 5 µs</title>"));
    assert_int_equal(occurrences(text, "class=\"frame\""), 4);
    assert_non_null(strstr(text, ">Time relative to a&lt;b (above 1: a&lt;b is faster)<"));
    assert_int_equal(occurrences(text, ">16 B</text>"), 2); /* the measured sizes */
    assert_int_equal(occurrences(text, ">4 B</text>"), 0);
    assert_int_equal(occurrences(text, ">2 µs</text>"), 2); /* ticks of less than a decade */
    assert_null(strstr(text, "a<b"));
    free(text);
    result_free(result);
}

static void test_bad_CSV_is_rejected(void **state)
{
    const char *failure;

    (void)state;
    assert_null(read_text("", &failure));
    assert_non_null(strstr(failure, ":1: the file is empty"));
    assert_null(read_text("collective,size\n", &failure));
    assert_non_null(strstr(failure, ":1: no column dtype"));
    assert_null(read_text(CSV_HEAD "all_reduce,8\n", &failure));
    assert_non_null(strstr(failure, ":2: no field dtype"));
    assert_null(read_text(CSV_HEAD "all_reduce,8,float32,sum,-1,1,0,,a,1,right\n", &failure));
    assert_non_null(strstr(failure, ":2: '0' is not a number of ranks"));
    assert_null(read_text(CSV_HEAD "all_reduce,x,float32,sum,-1,1,2,,a,1,right\n", &failure));
    assert_non_null(
        strstr(failure, ":2: invalid collective, size or dtype: 'all_reduce', 'x', 'float32'"));
    assert_null(csv_read("/nowhere", &failure));
    assert_non_null(strstr(failure, "/nowhere: No such file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_curves_are_drawn),
        cmocka_unit_test(test_a_single_point_is_not_drawn),
        cmocka_unit_test(test_a_page_shows_all_results),
        cmocka_unit_test(test_a_picture_is_drawn_from_CSV),
        cmocka_unit_test(test_bad_CSV_is_rejected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
