/* SPDX-License-Identifier: BSD-3-Clause */
/* Text in HTML and SVG. */
#ifndef TOOLS_MARKUP_H
#define TOOLS_MARKUP_H

#include <stdio.h>

/*
 * Prints text with <, >, &, " and ' escaped, a blank for each control character, which XML does not
 * allow, and the replacement character for each byte that is not valid UTF-8.
 */
void markup_escape(const char *text, FILE *to);

#endif
