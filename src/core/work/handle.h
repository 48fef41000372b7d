/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles of works: what the program holds, told from those of works that are gone. */
#ifndef DISTI_CORE_WORK_HANDLE_H
#define DISTI_CORE_WORK_HANDLE_H

#include "core/work/work.h"

/*
 * A handle is a number, not an address: which slot, and which of the works that were in it. Slots
 * are used again and never freed, so a handle can always be looked up, whatever the program has
 * done with it, and memory grows with the works that there are at a time, not with all that were
 * made. Any thread may call these; none blocks.
 *
 *     take ----> pinned by the library ----> the last pin goes: the slot is free
 *                  |            ^
 *              pin | unpin      | while a call of the program looks at it
 *            claim | unclaim    | while one waits for it or starts it: one at a time
 */

/* A slot, not filled, with a pin that is the caller's. NULL: no memory. */
struct disti_work *disti_handle_take(void);

/* What the program is to get. */
dist_work *disti_handle_of(const struct disti_work *work);

/*
 * The work of a handle. On success *work_p is to be given to disti_work_unpin. ERR_INVALID_ARGUMENT
 * where it is NULL, or was waited for or freed before; `name` is the call, for the message.
 */
dist_status disti_handle_pin(dist_work *handle, const char *name, struct disti_work **work_p);

/*
 * The same, for the one call at a time that may end the work: ERR_INVALID_ARGUMENT if there is one
 * already. On success it is to be given to disti_handle_unclaim or disti_handle_retire.
 */
dist_status disti_handle_claim(dist_work *handle, const char *name, struct disti_work **work_p);
void disti_handle_unclaim(struct disti_work *work);

/*
 * Instead of unclaim: the handle is good for nothing from now on. Gives back `pins` pins, the
 * claim's own among them; true: they were the last, and the caller is to call disti_handle_give.
 */
bool disti_handle_retire(struct disti_work *work, int pins);

/* Gives a pin back. True: it was the last, and the caller is to call disti_handle_give. */
bool disti_handle_unpin(struct disti_work *work);

/* The slot is free for another work. */
void disti_handle_give(struct disti_work *work);

#endif
