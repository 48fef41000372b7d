/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info env: the environment variables. */
#ifndef DISTI_TOOLS_ENV_H
#define DISTI_TOOLS_ENV_H

#include <stddef.h>

/* argv[0] is "env". Returns the exit code. */
int env_main(int argc, char **argv);

/* Where a variable of this process comes from. */

/*
 * Writes who has set it to text[size]: "bash (1234)" for the closest ancestor that was itself
 * started with another value or none; "the environment" where no ancestor that can be looked at
 * was.
 */
void origin_of(const char *name, const char *value, char *text, size_t size);

#endif
