/* SPDX-License-Identifier: BSD-3-Clause */
/* Escaping of text for JSON, HTML and SVG. */
#include "tools/common/text.h"

#include <stdint.h>
#include <string.h>

/* UTF-8. */

/* Returns the number of bytes of the character at the start of text; 0 if it is invalid. */
static int utf8_length(const char *text)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *bytes = (const unsigned char *)text;
    const int length = bytes[0] < 0x80             ? 1
                       : (bytes[0] & 0xe0) == 0xc0 ? 2
                       : (bytes[0] & 0xf0) == 0xe0 ? 3
                       : (bytes[0] & 0xf8) == 0xf0 ? 4
                                                   : 0;
    uint32_t code = bytes[0];

    if (length < 2)
        return length;
    code &= 0x7fu >> length;
    for (int i = 1; i < length; i++) {
        if ((bytes[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (bytes[i] & 0x3f);
    }
    return code < least[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0
                                                                                        : length;
}

/*
 * Prints the UTF-8 character at the start of text. If it is invalid, prints U+FFFD in place of its
 * first byte. Returns a pointer to the text after what was printed. text is not "".
 */
static const char *utf8_print(const char *text, FILE *to)
{
    const int length = utf8_length(text);

    if (length == 0) {
        fputs(UTF8_REPLACEMENT, to);
        return text + 1;
    }
    fwrite(text, 1, (size_t)length, to);
    return text + length;
}

/* Strings of JSON. */

void json_quoted(const char *text, FILE *to)
{
    fputc('"', to);
    while (*text) {
        const unsigned char c = (unsigned char)*text;

        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) {
            text = utf8_print(text, to);
            continue;
        }
        fprintf(to, c < 0x20 || c == 0x7f ? "\\u%04x" : "\\%c", c);
        text++;
    }
    fputc('"', to);
}

void json_member(const char *name, const char *text, bool first, FILE *to)
{
    fputs(first ? "" : ", ", to);
    json_quoted(name, to);
    fputs(": ", to);
    json_quoted(text, to);
}

/* Escaping text for HTML and SVG. */

void markup_escape(const char *text, FILE *to)
{
    static const char marks[] = "<>&\"'";
    static const char *const escaped[] = {"&lt;", "&gt;", "&amp;", "&quot;", "&#39;"};

    while (*text) {
        const char *mark = strchr(marks, *text);

        if (!mark && (unsigned char)*text >= 0x20) {
            text = utf8_print(text, to);
            continue;
        }
        fputs(mark ? escaped[mark - marks] : " ", to);
        text++;
    }
}
