/* SPDX-License-Identifier: BSD-3-Clause */
/* Detects a launcher, and reports how ranks that this process started have ended. */
#ifndef TOOLS_LAUNCHED_H
#define TOOLS_LAUNCHED_H

#include <stdbool.h>

/* True if an environment variable is set by which libdist recognizes a launcher. */
bool launched_in_job(void);

/*
 * After dist_spawn: prints to stderr which rank failed first and its signal or exit code, or the
 * signal that was sent to this process. `code` is the nonzero exit code of dist_spawn.
 */
void launched_report_end(const char *program, int code);

#endif
