/* SPDX-License-Identifier: BSD-3-Clause */
/* Settings: environment variables and the parsing of numbers, strict. */
#include "base/settings/config.h"

#include "base/checked.h"
#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static bool config_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

dist_status disti_parse_int(const char *what, const char *text, int min, int max, int *value_p)
{
    const char *digits = text && text[0] == '-' ? text + 1 : text;
    char *end;
    long long value;

    if (!text || !text[0])
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s is empty: give a number from %d to %d",
                          what, min, max);
    errno = 0;
    value = strtoll(text, &end, 10);
    if (!config_is_digit(digits[0]) || *end)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "%s is \"%.64s\", which is not a whole number: give one from %d to %d",
                          what, text, min, max);
    if (errno == ERANGE || value < min || value > max)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "%s is %.64s, out of range: give a number from %d to %d", what, text, min,
                          max);
    *value_p = (int)value;
    return DIST_OK;
}

/* The factor behind a number of bytes; 0 if `suffix` is none. */
static size_t config_unit(const char *suffix)
{
    if (!suffix[0])
        return 1;
    if (suffix[1])
        return 0;
    switch (suffix[0]) {
    case 'k':
    case 'K':
        return (size_t)1 << 10;
    case 'm':
    case 'M':
        return (size_t)1 << 20;
    case 'g':
    case 'G':
        return (size_t)1 << 30;
    default:
        return 0;
    }
}

dist_status disti_parse_bytes(const char *what, const char *text, size_t *value_p)
{
    char *end;
    unsigned long long number;
    size_t unit, value;

    if (!text || !text[0])
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "%s is empty: give a number of bytes such as 4096, 64K, 1M or 2G", what);
    errno = 0;
    number = strtoull(text, &end, 10);
    unit = config_unit(end);
    if (!config_is_digit(text[0]) || !unit)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "%s is \"%.64s\", which is not a number of bytes: give one such as 4096, "
                          "64K, 1M or 2G",
                          what, text);
    if (errno == ERANGE || number > SIZE_MAX || !disti_mul((size_t)number, unit, &value))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "%s is %.64s, which is more bytes than this machine can count: give less",
                          what, text);
    *value_p = value;
    return DIST_OK;
}

dist_status disti_env_int(const char *name, int min, int max, int fallback, int *value_p)
{
    const char *text = disti_env_raw(name);

    if (text)
        return disti_parse_int(name, text, min, max, value_p);
    *value_p = fallback;
    return DIST_OK;
}

dist_status disti_env_seconds(const char *name, int fallback_ms, int *ms_p)
{
    int seconds = 0;
    dist_status status = disti_env_int(name, 1, INT_MAX, 0, &seconds);

    if (status == DIST_OK)
        *ms_p = seconds == 0 ? fallback_ms : seconds > INT_MAX / 1000 ? INT_MAX : seconds * 1000;
    return status;
}

dist_status disti_env_bytes(const char *name, size_t fallback, size_t *value_p)
{
    const char *text = disti_env_raw(name);

    if (text)
        return disti_parse_bytes(name, text, value_p);
    *value_p = fallback;
    return DIST_OK;
}

bool disti_list_item(const char *list, char separator, int index, char *item, size_t size)
{
    const char *end;
    size_t length;

    if (!list || !list[0] || index < 0)
        return false;
    for (; index > 0; index--) {
        list = strchr(list, separator);
        if (!list)
            return false;
        list++;
    }
    end = strchrnul(list, separator);
    length = (size_t)(end - list);
    if (length >= size)
        return false;
    memcpy(item, list, length);
    item[length] = '\0';
    return true;
}

/* Is the interface's name that item of the list, or, unless exact, does it begin with it? */
static bool interface_is(const char *name, const char *item, size_t length, bool exact)
{
    return length && strncmp(name, item, length) == 0 && !(exact && name[length]);
}

bool disti_interface_fits(const char *spec, const char *name)
{
    bool exclude = spec[0] == '^', fits = false;
    bool exact;
    size_t length;

    spec += exclude;
    exact = spec[0] == '=';
    spec += exact;
    for (; !fits && spec[0]; spec += length + (spec[length] != '\0')) {
        length = strcspn(spec, ",");
        fits = interface_is(name, spec, length, exact);
    }
    return fits != exclude;
}
