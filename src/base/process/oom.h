/* SPDX-License-Identifier: BSD-3-Clause */
/* How many processes the kernel's out-of-memory killer has ended. */
#ifndef DISTI_BASE_PROCESS_OOM_H
#define DISTI_BASE_PROCESS_OOM_H

#include <stdbool.h>
#include <stdint.h>

/*
 * A launcher reads the number before it starts processes, and again when SIGKILL has ended one.
 * Counted are processes of this process's cgroup (version 1 or 2), or, without a cgroup for memory,
 * of the machine. 0: not known.
 */
int64_t disti_process_oom_kills(void);

/* The same from files like /proc/PID/cgroup and /proc/vmstat, and the folder of cgroups. */
int64_t disti_process_oom_kills_in(const char *membership, const char *mounts, const char *vmstat);

/* The text after "ended by SIGKILL" in a message: the cause and the fix, or "" unless `killed`. */
const char *disti_process_oom_text(bool killed);

#endif
