/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a launcher has started this process. */
#ifndef TOOLS_LAUNCHED_H
#define TOOLS_LAUNCHED_H

#include <stdbool.h>

/* Is a variable set by which libdist knows a launcher? */
bool launched_in_job(void);

#endif
