/* SPDX-License-Identifier: BSD-3-Clause */
/* The interface of hooks.c for a program that runs with it in LD_PRELOAD. */
#ifndef TESTS_STANDIN_HOOKS_H
#define TESTS_STANDIN_HOOKS_H

#include <stdbool.h>
#include <stddef.h>

/* Caches a range, as if its pages were pinned; only one at a time. */
void hooks_pin(const void *memory, size_t bytes);

/* True until a call of libc has changed a page of that range. */
bool hooks_has_pinned(void);

/* Raises SIGUSR1 while the lock of the hooks is held, as a signal may arrive at any time. */
void hooks_interrupt(void);

/* Selects whether a moved mapping is placed elsewhere than requested, as under a tool that changes
 * system calls. */
void hooks_mislead(bool misleads);

#endif
