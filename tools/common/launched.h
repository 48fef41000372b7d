/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a launcher has started this process, and how processes that it started itself ended. */
#ifndef TOOLS_LAUNCHED_H
#define TOOLS_LAUNCHED_H

#include <stdbool.h>

/* Is a variable set by which libdist knows a launcher? */
bool launched_in_job(void);

/*
 * After dist_spawn: prints to stderr which rank failed first, and its signal or exit code, or the
 * signal that ended all. `code` is the exit code that dist_spawn gave, not 0.
 */
void launched_tell_end(const char *program, int code);

#endif
