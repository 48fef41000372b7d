/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info env: the environment variables. */
#ifndef TOOLS_ENV_ENV_H
#define TOOLS_ENV_ENV_H

/* argv[0] is "env". Returns the exit code. */
int env_main(int argc, char **argv);

#endif
