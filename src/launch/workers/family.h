/* SPDX-License-Identifier: BSD-3-Clause */
/* The children of the workers, and their children. */
#ifndef DISTI_LAUNCH_RUN_FAMILY_H
#define DISTI_LAUNCH_RUN_FAMILY_H

#include <stdbool.h>

/*
 * From now on processes below this one whose parent ends become its own children, so that none is
 * lost: none is left when this one has no child any more.
 */
void disti_run_family_adopt(void);

/*
 * Sends a signal to all processes below this one, however deep. Does not wait. False: these are not
 * known, since /proc is not mounted, or shows the processes of another PID namespace.
 */
bool disti_run_family_signal(int signal_number);

#endif
