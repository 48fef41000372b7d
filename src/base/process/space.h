/* SPDX-License-Identifier: BSD-3-Clause */
/* The PID namespace of this process, which decides whom a pid names. */
#ifndef DISTI_BASE_PROCESS_SPACE_H
#define DISTI_BASE_PROCESS_SPACE_H

#include <stdbool.h>
#include <stdint.h>

/* The inode of this process's PID namespace; 0: not known, since /proc is not mounted. */
uint32_t disti_process_space(void);

/*
 * True if /proc has the processes of this PID namespace. False: it is not mounted, or shows those
 * of another namespace (unshare --pid without --mount-proc), where a pid of this process belongs to
 * another one.
 */
bool disti_process_proc_is_own(void);

/* The text after a pid in a message: "", or " in another PID namespace". */
const char *disti_process_elsewhere(uint32_t space);

#endif
