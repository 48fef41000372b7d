/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends that are announced and not yet asked for, shared by the transports. */
#ifndef DISTI_TRANSPORTS_MATCH_ANNOUNCED_H
#define DISTI_TRANSPORTS_MATCH_ANNOUNCED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A table, all zero at first: each send has a name, a small number by which the peer asks for it.
 */
struct disti_announced {
    struct disti_announced_slot *slots;
    uint32_t room, count, free;
};

/* Keeps `send` under a new name. False: out of memory. */
bool disti_announced_add(struct disti_announced *announced, void *send, uint32_t *name_p);

/* Takes out the send with that name; NULL: there is none. */
void *disti_announced_take(struct disti_announced *announced, uint64_t name);

/* Takes out the first send from *cursor on, 0 at first, and moves it behind that; NULL: no more. */
void *disti_announced_take_next(struct disti_announced *announced, uint32_t *cursor);

/* Where the send with that name stands; NULL: there is none. */
void **disti_announced_slot(struct disti_announced *announced, uint64_t name);

/* Frees the table. The sends are the caller's. */
void disti_announced_clear(struct disti_announced *announced);

#endif
