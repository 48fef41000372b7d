/* SPDX-License-Identifier: BSD-3-Clause */
/* Strict parsing of environment variables and numbers. */
#ifndef DISTI_BASE_SETTINGS_CONFIG_H
#define DISTI_BASE_SETTINGS_CONFIG_H

#include "base/settings/env.h"

#include <dist/dist.h>

/*
 * Parses a decimal integer in [min, max]: no sign except '-', no blanks, no other text after it.
 * `what` names the value in the error ("RANK", "--rank").
 */
dist_status disti_parse_int(const char *what, const char *text, int min, int max, int *value_p);

/* Parses 4096, 64K, 1M, 2G (powers of 1024). */
dist_status disti_parse_bytes(const char *what, const char *text, size_t *value_p);

/* Gets an integer from the environment; `fallback` if unset. */
dist_status disti_env_int(const char *name, int min, int max, int fallback, int *value_p);

/*
 * Gets a number of one of libdist's own variables, within its range in variables.def; `fallback`
 * if unset.
 */
dist_status disti_variable_int(const char *name, int fallback, int *value_p);

/*
 * Gets seconds from the environment, an integer of at least 1, as milliseconds, at most INT_MAX
 * (24.8 days). `fallback_ms` if unset.
 */
dist_status disti_env_seconds(const char *name, int fallback_ms, int *ms_p);
dist_status disti_env_bytes(const char *name, size_t fallback, size_t *value_p);

/*
 * Splits `list` ("shm,tcp") at `separator` and copies item `index` to item[size]. Returns false if
 * there is no such item, or it does not fit.
 */
bool disti_list_item(const char *list, char separator, int index, char *item, size_t size);

/* True if the interface name matches `spec`, which has the syntax of DIST_SOCKET_IFNAME. */
bool disti_interface_fits(const char *spec, const char *name);

#endif
