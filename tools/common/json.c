/* SPDX-License-Identifier: BSD-3-Clause */
/* Strings of JSON. */
#include "json.h"

void json_string(const char *text, FILE *to)
{
    fputc('"', to);
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\')
            fprintf(to, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            fprintf(to, "\\u%04x", c);
        else
            fputc(c, to);
    }
    fputc('"', to);
}

void json_member(const char *name, const char *text, bool first, FILE *to)
{
    fputs(first ? "" : ", ", to);
    json_string(name, to);
    fputs(": ", to);
    json_string(text, to);
}
