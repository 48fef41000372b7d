/* SPDX-License-Identifier: BSD-3-Clause */
/* Strings of JSON. */
#include "json.h"

#include "utf8.h"

void json_string(const char *text, FILE *to)
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
    json_string(name, to);
    fputs(": ", to);
    json_string(text, to);
}
