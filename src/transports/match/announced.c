/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends that are announced and not yet asked for, shared by the transports. */
#include "transports/match/announced.h"

#include <stdlib.h>

#define ANNOUNCED_ROOM 64 /* at first */

struct disti_announced_slot {
    void *send; /* NULL: unused */
    uint32_t next_free;
};

/* Sees to it that there is an unused slot. */
static bool announced_has_slot(struct disti_announced *announced)
{
    uint32_t room = announced->room ? announced->room * 2 : ANNOUNCED_ROOM;
    struct disti_announced_slot *slots;

    if (announced->free < announced->room)
        return true;
    slots = room > announced->room ? realloc(announced->slots, room * sizeof(*slots)) : NULL;
    if (!slots)
        return false;
    for (uint32_t i = announced->room; i < room; i++)
        slots[i] = (struct disti_announced_slot){.next_free = i + 1};
    announced->slots = slots;
    announced->room = room;
    return true;
}

bool disti_announced_add(struct disti_announced *announced, void *send, uint32_t *name_p)
{
    uint32_t name;

    if (!announced_has_slot(announced))
        return false;
    name = announced->free;
    announced->free = announced->slots[name].next_free;
    announced->slots[name].send = send;
    announced->count++;
    *name_p = name;
    return true;
}

void *disti_announced_take(struct disti_announced *announced, uint64_t name)
{
    void *send = name < announced->room ? announced->slots[name].send : NULL;

    if (!send)
        return NULL;
    announced->slots[name] = (struct disti_announced_slot){.next_free = announced->free};
    announced->free = (uint32_t)name;
    announced->count--;
    return send;
}

void **disti_announced_slot(struct disti_announced *announced, uint64_t name)
{
    return name < announced->room && announced->slots[name].send ? &announced->slots[name].send
                                                                 : NULL;
}

void *disti_announced_take_next(struct disti_announced *announced, uint32_t *cursor)
{
    void *send = NULL;

    while (announced->count && !send && *cursor < announced->room)
        send = disti_announced_take(announced, (*cursor)++);
    return send;
}

void disti_announced_clear(struct disti_announced *announced)
{
    free(announced->slots);
    *announced = (struct disti_announced){0};
}
