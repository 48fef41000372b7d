/* SPDX-License-Identifier: BSD-3-Clause */
/* What the kernel has of a process of this machine and of its threads (/proc/PID/stat). */
#ifndef DISTI_BASE_PROCESS_STAT_H
#define DISTI_BASE_PROCESS_STAT_H

#include <stdbool.h>

/*
 * Has the process's first thread ended, or begun to? Then *status_p is as wait(2) has it. False: it
 * goes on, or nothing is known of it any more.
 */
bool disti_process_first_ends(int pid, int *status_p);

/*
 * The number of a thread of the process that goes on, and is not its first. 0: there is none, or
 * nothing is known. The first may have ended by pthread_exit while the process lives. It has no
 * memory and no descriptors then, while those of every other thread are the process's.
 */
int disti_process_thread(int pid);

#endif
