/* SPDX-License-Identifier: BSD-3-Clause */
/* Strings of JSON, and text in HTML and SVG: whatever bytes they are made of, the output is UTF-8.
 */
#include "tests/unit/base/unit.h"
#include "tools/common/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BAD "\xef\xbf\xbd"

static char *printed(void (*print)(const char *text, FILE *to), const char *text)
{
    static char *said;
    size_t size;
    FILE *to;

    free(said);
    to = open_memstream(&said, &size);
    print(text, to);
    fclose(to);
    return said;
}

static void test_json(void **state)
{
    (void)state;
    assert_string_equal(printed(json_string, "a\"b\\\n\x7f"), "\"a\\\"b\\\\\\u000a\\u007f\"");
    assert_string_equal(printed(json_string, "n\xf6"
                                             "de"),
                        "\"n" BAD "de\"");
}

static void test_markup(void **state)
{
    (void)state;
    assert_string_equal(printed(markup_escape, "<a & \"b\">'\x1b"),
                        "&lt;a &amp; &quot;b&quot;&gt;&#39; ");
    assert_string_equal(printed(markup_escape, "n\xf6"
                                               "de"),
                        "n" BAD "de");
}

static void test_utf8(void **state)
{
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"\xc3\xb6 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xb6 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xc3", BAD},                         /* cut */
        {"\xe2\x82", BAD BAD},                 /* cut */
        {"\xc0\xaf", BAD BAD},                 /* too long for its code */
        {"\xed\xa0\x80", BAD BAD BAD},         /* a surrogate */
        {"\xf4\x90\x80\x80", BAD BAD BAD BAD}, /* above U+10FFFF */
        {"\x80\xff", BAD BAD},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(printed(markup_escape, cases[i].text), cases[i].said);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_json), cmocka_unit_test(test_markup),
                                       cmocka_unit_test(test_utf8)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
