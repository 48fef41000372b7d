/* SPDX-License-Identifier: BSD-3-Clause */
/* Escaping of text for JSON, HTML and SVG. */
#ifndef DISTI_TOOLS_COMMON_TEXT_H
#define DISTI_TOOLS_COMMON_TEXT_H

#include <stdbool.h>
#include <stdio.h>

/* Strings of JSON. */

/*
 * Prints text as a quoted and escaped JSON string. Each byte that is not valid UTF-8 is replaced by
 * U+FFFD.
 */
void json_quoted(const char *text, FILE *to);

/* Prints `"name": "text"`, after a comma unless it is the object's first member. */
void json_member(const char *name, const char *text, bool first, FILE *to);

/* Text in HTML and SVG. */

/*
 * Prints text with <, >, &, " and ' escaped. Control characters, which XML forbids, become blanks;
 * each byte that is not valid UTF-8 becomes U+FFFD.
 */
void markup_escape(const char *text, FILE *to);

/* U+FFFD, which replaces each byte that is not valid UTF-8, such as in a host name or argument. */
#define UTF8_REPLACEMENT "\xef\xbf\xbd"

#endif
