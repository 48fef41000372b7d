/* SPDX-License-Identifier: BSD-3-Clause */
/* Escaping text for HTML and SVG. */
#include "markup.h"

#include <string.h>

#include "utf8.h"

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
