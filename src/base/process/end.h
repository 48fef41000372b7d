/* SPDX-License-Identifier: BSD-3-Clause */
/* How a process ended, by what the kernel still has of it. */
#ifndef DISTI_BASE_PROCESS_END_H
#define DISTI_BASE_PROCESS_END_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Why a process on the host of that name, in PID namespace `space` (space.h), closed its connection
 * without a goodbye: "was killed by signal 9 (SIGKILL)", or "exited with code 3 without leaving the
 * job". The kernel knows it of this namespace's processes, while they end and until their parent
 * has waited for them. If nothing is known: "closed its connection without leaving the job".
 * Returns text, or that.
 */
const char *disti_process_end(const char *host, uint32_t space, int pid, char *text, size_t size);

#endif
