/* SPDX-License-Identifier: BSD-3-Clause */
/* Strings of JSON. */
#ifndef TOOLS_JSON_H
#define TOOLS_JSON_H

#include <stdbool.h>
#include <stdio.h>

/*
 * Prints text in quotes, escaped. UTF-8 is printed as it is, each byte that is not valid UTF-8 as
 * the replacement character.
 */
void json_string(const char *text, FILE *to);

/* The same behind "name": and, unless it is the first of its object, a comma. */
void json_member(const char *name, const char *text, bool first, FILE *to);

#endif
