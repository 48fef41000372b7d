/* SPDX-License-Identifier: BSD-3-Clause */
/* Settings: environment variables and the parsing of numbers, strict. */
#ifndef DISTI_BASE_SETTINGS_CONFIG_H
#define DISTI_BASE_SETTINGS_CONFIG_H

#include "base/settings/env.h"

#include <dist/dist.h>

/*
 * Whole decimal numbers only: no sign but '-', no blanks, nothing behind it, within
 * [min, max]. `what` names the value in the error ("RANK", "--rank").
 */
dist_status disti_parse_int(const char *what, const char *text, int min, int max, int *value_p);

/* 4096, 64K, 1M, 2G (1024-based). */
dist_status disti_parse_bytes(const char *what, const char *text, size_t *value_p);

/* An integer from the environment; `fallback` if unset. */
dist_status disti_env_int(const char *name, int min, int max, int fallback, int *value_p);

/* A number of the library's own, within the range in variables.def; `fallback` if unset. */
dist_status disti_variable_int(const char *name, int fallback, int *value_p);

/*
 * Whole seconds from the environment, 1 or more, as milliseconds: INT_MAX, 24.8 days, if these are
 * more. `fallback_ms` if unset.
 */
dist_status disti_env_seconds(const char *name, int fallback_ms, int *ms_p);
dist_status disti_env_bytes(const char *name, size_t fallback, size_t *value_p);

/*
 * Cuts `list` ("shm,tcp") at `separator` and copies item `index` to item[size].
 * False if there is no such item, or it does not fit.
 */
bool disti_list_item(const char *list, char separator, int index, char *item, size_t size);

/* Does the interface name fit DIST_SOCKET_IFNAME's syntax? */
bool disti_interface_fits(const char *spec, const char *name);

#endif
