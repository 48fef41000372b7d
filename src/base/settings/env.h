/* SPDX-License-Identifier: BSD-3-Clause */
/* The only functions that read the environment; also used by loadable modules. */
#ifndef DISTI_BASE_SETTINGS_ENV_H
#define DISTI_BASE_SETTINGS_ENV_H

/*
 * Returns the variable's value, which may be empty; NULL if unset. In a program that has more
 * privileges than its caller (setuid, setgid, file capabilities), all variables count as unset,
 * since they name modules to load and files to open.
 */
const char *disti_env_raw(const char *name);

/* As disti_env_raw, but returns NULL for an empty value. */
const char *disti_env(const char *name);

#endif
