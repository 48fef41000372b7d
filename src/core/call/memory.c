/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that the backend moves fastest: its own, or segments, which peers of the machine map. */
#include "base/checked.h"
#include "base/process_lock.h"
#include "core/group/group.h"
#include "core/work/work.h"
#include "node/segment/segment.h"

#include <stdlib.h>

/* Memory that a backend allocated; it goes with the group. */
struct memory_loan {
    struct memory_loan *next;
    struct dist_group *group;
    void *memory;
};

DISTI_PROCESS_LOCK(memory_lock);
static struct memory_loan *memory_loans;
static struct memory_loan *memory_empties; /* registered with 0 bytes */

static void memory_note(struct memory_loan **list, struct memory_loan *loan)
{
    pthread_mutex_lock(&memory_lock);
    loan->next = *list;
    *list = loan;
    pthread_mutex_unlock(&memory_lock);
}

/* Takes out the loan of that memory, or if that is NULL one of the group's; NULL: there is none. */
static struct memory_loan *memory_take(struct memory_loan **list, const struct dist_group *group,
                                       const void *memory)
{
    struct memory_loan **entry = list, *loan;

    pthread_mutex_lock(&memory_lock);
    while (*entry && (memory ? (*entry)->memory != memory : (*entry)->group != group))
        entry = &(*entry)->next;
    loan = *entry;
    if (loan)
        *entry = loan->next;
    pthread_mutex_unlock(&memory_lock);
    return loan;
}

/* ---- of the backend ---- */

static bool memory_is_lent(const struct dist_group *group)
{
    return group->backend->alloc && group->backend->free;
}

/* With the lock held. */
static dist_status memory_ask(struct dist_group *group, size_t bytes, void **memory_p)
{
    if (group->failed)
        return disti_group_refuse(group, "dist_alloc");
    disti_drive_wake(group);
    *memory_p = group->backend->alloc(group->state, bytes);
    if (!*memory_p)
        return disti_fail(DIST_ERR_NO_MEMORY, "rank %d: backend %s has no memory for %zu bytes",
                          group->rank, group->backend->name, bytes);
    return DIST_OK;
}

static dist_status memory_borrow(struct dist_group *group, size_t bytes, void **memory_p)
{
    struct memory_loan *loan = calloc(1, sizeof(*loan));
    dist_status status;

    if (!loan)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory to note an allocation");
    loan->group = group;
    disti_group_enter(group);
    status = memory_ask(group, bytes, &loan->memory);
    disti_group_exit(group);
    if (status != DIST_OK) {
        free(loan);
        return status;
    }
    *memory_p = loan->memory;
    memory_note(&memory_loans, loan);
    return DIST_OK;
}

static void memory_give_back(struct memory_loan *loan)
{
    struct dist_group *group = loan->group;

    disti_group_enter(group);
    disti_drive_wake(group);
    group->backend->free(group->state, loan->memory);
    disti_group_exit(group);
    free(loan);
}

void disti_memory_forked(void)
{
    memory_loans = memory_empties = NULL;
}

void disti_memory_reclaim(struct dist_group *group)
{
    struct memory_loan *loan;

    while ((loan = memory_take(&memory_loans, group, NULL))) {
        group->backend->free(group->state, loan->memory);
        free(loan);
    }
}

/* ---- the public calls ---- */

/* The log of a group that may be gone. */
static void memory_log(const struct dist_group *group)
{
    disti_log_use(group && !atomic_load(&group->destroyed) ? group->log : NULL);
}

dist_status dist_alloc(dist_group *group, size_t bytes, void **memory_p)
{
    dist_status status = group ? disti_group_check(group, "dist_alloc") : DIST_OK;

    if (status != DIST_OK)
        return status;
    if (!memory_p)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_alloc: the pointer that takes the address is NULL");
    if (bytes > DISTI_BYTES_MAX)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_alloc: bytes is %zu, which no address space holds: ask for at most "
                          "%zu",
                          bytes, DISTI_BYTES_MAX);
    if (bytes == 0) {
        *memory_p = NULL;
        return DIST_OK;
    }
    if (group && memory_is_lent(group))
        return memory_borrow(group, bytes, memory_p);
    memory_log(group);
    status = disti_segment_alloc(bytes, memory_p);
    disti_log_use(NULL);
    return status;
}

/* The group may be NULL or destroyed, but not a parent's. */
static dist_status memory_check(const struct dist_group *group, const char *what)
{
    return group && group->inherited ? disti_group_check(group, what) : DIST_OK;
}

dist_status dist_free(dist_group *group, void *memory)
{
    dist_status status = memory_check(group, "dist_free");
    struct memory_loan *loan;

    if (status != DIST_OK)
        return status;
    loan = memory ? memory_take(&memory_loans, NULL, memory) : NULL;
    if (loan) {
        memory_give_back(loan);
        return DIST_OK;
    }
    memory_log(group);
    status = disti_segment_free(memory);
    disti_log_use(NULL);
    return status;
}

/* No bytes need no registration, but dist_unregister is to know the address. */
static dist_status memory_register_empty(void *memory)
{
    struct memory_loan *empty = memory ? calloc(1, sizeof(*empty)) : NULL;

    if (!memory)
        return DIST_OK;
    if (!empty)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory to note a registration");
    empty->memory = memory;
    memory_note(&memory_empties, empty);
    return DIST_OK;
}

dist_status dist_register(dist_group *group, void *memory, size_t bytes)
{
    dist_status status = disti_group_check(group, "dist_register");

    if (status != DIST_OK)
        return status;
    if (bytes == 0)
        return memory_register_empty(memory);
    if (!memory)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "dist_register: the memory is NULL");
    if (!disti_addressable(memory, bytes))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_register: %zu bytes at %p pass the end of the address space: give "
                          "the size of the memory",
                          bytes, memory);
    memory_log(group);
    status = disti_segment_register(memory, bytes);
    disti_log_use(NULL);
    return status;
}

dist_status dist_unregister(dist_group *group, void *memory)
{
    dist_status status = memory_check(group, "dist_unregister");
    struct memory_loan *empty;

    if (status != DIST_OK)
        return status;
    empty = memory ? memory_take(&memory_empties, NULL, memory) : NULL;
    free(empty);
    if (empty)
        return DIST_OK;
    memory_log(group);
    status = disti_segment_unregister(memory);
    disti_log_use(NULL);
    return status;
}
