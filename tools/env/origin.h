/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a variable of this process comes from. */
#ifndef TOOLS_ENV_ORIGIN_H
#define TOOLS_ENV_ORIGIN_H

#include <stddef.h>

/*
 * Writes who has set it to text[size]: "bash (1234)" for the closest ancestor that was itself
 * started with another value or none; "the environment" where no ancestor that can be looked at
 * was.
 */
void origin_of(const char *name, const char *value, char *text, size_t size);

#endif
