/* SPDX-License-Identifier: BSD-3-Clause */
/* The one place where the environment is read; part of the modules too. */
#ifndef DISTI_BASE_SETTINGS_ENV_H
#define DISTI_BASE_SETTINGS_ENV_H

/*
 * The variable's value, which may be empty; NULL if it is unset. In a program that has more rights
 * than its caller (setuid, setgid, file capabilities) nothing is set: variables name modules to
 * load and files to open.
 */
const char *disti_env_raw(const char *name);

/* The same, and NULL if it is empty. */
const char *disti_env(const char *name);

#endif
