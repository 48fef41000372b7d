/* SPDX-License-Identifier: BSD-3-Clause */
/* Strings in JSON, and text in HTML and SVG: the output is UTF-8 for any input bytes. */
#include "tests/unit/base/unit.h"
#include "tools/common/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BAD "\xef\xbf\xbd"

static char *printed(void (*print)(const char *text, FILE *to), const char *text)
{
    static char *output;
    size_t size;
    FILE *to;

    free(output);
    to = open_memstream(&output, &size);
    print(text, to);
    fclose(to);
    return output;
}

static void test_JSON_strings_are_escaped(void **state)
{
    (void)state;
    assert_string_equal(printed(json_quoted, "a\"b\\\n\x7f"), "\"a\\\"b\\\\\\u000a\\u007f\"");
    assert_string_equal(printed(json_quoted, "n\xf6"
                                             "de"),
                        "\"n" BAD "de\"");
}

static void test_markup_is_escaped(void **state)
{
    (void)state;
    assert_string_equal(printed(markup_escape, "<a & \"b\">'\x1b"),
                        "&lt;a &amp; &quot;b&quot;&gt;&#39; ");
    assert_string_equal(printed(markup_escape, "n\xf6"
                                               "de"),
                        "n" BAD "de");
}

static void test_invalid_UTF_8_is_replaced(void **state)
{
    static const struct {
        const char *text, *output;
    } cases[] = {
        {"\xc3\xb6 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xb6 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xc3", BAD},                         /* truncated */
        {"\xe2\x82", BAD BAD},                 /* truncated */
        {"\xc0\xaf", BAD BAD},                 /* overlong encoding */
        {"\xed\xa0\x80", BAD BAD BAD},         /* a surrogate */
        {"\xf4\x90\x80\x80", BAD BAD BAD BAD}, /* above U+10FFFF */
        {"\x80\xff", BAD BAD},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(printed(markup_escape, cases[i].text), cases[i].output);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_JSON_strings_are_escaped),
                                       cmocka_unit_test(test_markup_is_escaped),
                                       cmocka_unit_test(test_invalid_UTF_8_is_replaced)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
