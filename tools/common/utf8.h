/* SPDX-License-Identifier: BSD-3-Clause */
/* Text that may not be valid UTF-8, such as a host's name or an argument. */
#ifndef TOOLS_UTF8_H
#define TOOLS_UTF8_H

#include <stdio.h>

/* Replaces each byte that is not valid UTF-8: U+FFFD. */
#define UTF8_REPLACEMENT "\xef\xbf\xbd"

/*
 * Prints the UTF-8 character that text begins with, or the replacement for its first byte if that
 * begins none. Returns a pointer to the remaining text. text is not "".
 */
const char *utf8_print(const char *text, FILE *to);

#endif
