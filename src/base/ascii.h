/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parsing of words and numbers in settings, independent of the program's locale. After
 * setlocale(LC_ALL, "") in a Turkish locale, strcasecmp reports that "info" and "INFO" differ, and
 * in a German locale strtod stops at the point of "0.1".
 */
#ifndef DISTI_BASE_ASCII_H
#define DISTI_BASE_ASCII_H

#include <locale.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

static inline char disti_ascii_lower(char c)
{
    return (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

static inline char disti_ascii_upper(char c)
{
    return (char)(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
}

/* True for letters and digits. */
static inline bool disti_ascii_alnum(char c)
{
    c = disti_ascii_lower(c);
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/*
 * True if the first `length` bytes, or both complete texts if they are shorter, are equal; ignores
 * case.
 */
static inline bool disti_ascii_begins_same(const char *a, const char *b, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (disti_ascii_lower(a[i]) != disti_ascii_lower(b[i]))
            return false;
        if (!a[i])
            break;
    }
    return true;
}

/* True if the texts are equal; ignores case. */
static inline bool disti_ascii_same(const char *a, const char *b)
{
    return disti_ascii_begins_same(a, b, SIZE_MAX);
}

/* strtod, with a point as the decimal separator. */
static inline double disti_ascii_real(const char *text, char **end_p)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    double value = strtod_l(text, end_p, c);

    freelocale(c);
    return value;
}

#endif
