/* SPDX-License-Identifier: BSD-3-Clause */
/* Text as JSON, HTML and UTF-8. */
#ifndef DISTI_TOOLS_COMMON_TEXT_H
#define DISTI_TOOLS_COMMON_TEXT_H

#include <stdbool.h>
#include <stdio.h>

/* Strings of JSON. */

/*
 * Prints text in quotes, escaped. UTF-8 is printed as it is, each byte that is not valid UTF-8 as
 * the replacement character.
 */
void json_string(const char *text, FILE *to);

/* The same behind "name": and, unless it is the first of its object, a comma. */
void json_member(const char *name, const char *text, bool first, FILE *to);

/* Text in HTML and SVG. */

/*
 * Prints text with <, >, &, " and ' escaped, a blank for each control character, which XML does not
 * allow, and the replacement character for each byte that is not valid UTF-8.
 */
void markup_escape(const char *text, FILE *to);

/* Text that may not be valid UTF-8, such as a host's name or an argument. */

/* Replaces each byte that is not valid UTF-8: U+FFFD. */
#define UTF8_REPLACEMENT "\xef\xbf\xbd"

#endif
