/* SPDX-License-Identifier: BSD-3-Clause */
/* Why a process or a thread cannot be started. */
#ifndef DISTI_BASE_PROCESS_LIMIT_H
#define DISTI_BASE_PROCESS_LIMIT_H

#include <dist/dist.h>

/*
 * Reports from errno that something cannot be started, with the limit to raise. The format says
 * what: "start rank %d". Returns ERR_SYSTEM.
 */
dist_status disti_process_limit_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
