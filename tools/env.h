/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info env: the environment variables. */
#ifndef DISTI_TOOLS_ENV_H
#define DISTI_TOOLS_ENV_H

#include <stddef.h>

/* argv[0] is "env". Returns the exit code. */
int env_main(int argc, char **argv);

/* Where a variable of this process comes from. */

#endif
