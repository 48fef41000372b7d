/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Preload: tests and waits go straight to MPI until there is something of ours to wait for.
 *
 *    program ---- MPI_Test ----> MPI              from MPI_Init on
 *               \--------------> here ----> MPI   from the first operation that does not block
 *
 * Programs ask for their messages some million times a second, and then each jump more is felt. So
 * the slots through which the program calls are pointed past us, and back for good. A pointer
 * that it has taken is ours all the time, and so are slots in memory that is read-only by now:
 * to point these back could fail.
 */
#include "preload/names/objects.h"
#include "preload/preload.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

static struct straight_call {
    const char *name;     /* MPI's own; ours has no P before it */
    void *libdist, *mpis; /* NULL: it comes here all the time */
} straight_calls[] = {
    {"PMPI_Wait", NULL, NULL},
    {"PMPI_Waitall", NULL, NULL},
    {"PMPI_Waitany", NULL, NULL},
    {"PMPI_Waitsome", NULL, NULL},
    {"PMPI_Test", NULL, NULL},
    {"PMPI_Testall", NULL, NULL},
    {"PMPI_Testany", NULL, NULL},
    {"PMPI_Testsome", NULL, NULL},
    {"PMPI_Request_get_status", NULL, NULL},
};
#define STRAIGHT_CALLS (sizeof(straight_calls) / sizeof(straight_calls[0]))

static pthread_mutex_t straight_lock = PTHREAD_MUTEX_INITIALIZER; /* held while slots are written */
static atomic_bool straight_are_past;

/* ---- whose calls ---- */

/* Another library that was preloaded may have the call before us: then it stays with that. */
static bool straight_is_here(void *function)
{
    Dl_info there, here;

    return function && dladdr(function, &there) && dladdr(straight_calls, &here) &&
           there.dli_fbase == here.dli_fbase;
}

static void straight_learn(struct straight_call *call)
{
    call->libdist = dlsym(RTLD_DEFAULT, call->name + 1);
    call->mpis = straight_is_here(call->libdist) ? dlsym(RTLD_NEXT, call->name) : NULL;
}

/* NULL: the import is none of them. */
static const struct straight_call *straight_find(const struct disti_object *object,
                                                 const struct disti_import *import)
{
    if (!import->called || disti_object_seals(object, import->slot))
        return NULL;
    for (size_t i = 0; i < STRAIGHT_CALLS; i++) {
        if (straight_calls[i].mpis && strcmp(straight_calls[i].name + 1, import->name) == 0)
            return &straight_calls[i];
    }
    return NULL;
}

/* ---- the slots ---- */

/* Of the program itself a slot is ours too that the dynamic linker has not filled yet. */
static void straight_past(const struct disti_object *object, const struct disti_import *import,
                          void *arg)
{
    const struct straight_call *call = straight_find(object, import);

    (void)arg;
    if (call && (*import->slot == call->libdist || !*object->info->dlpi_name))
        __atomic_store_n(import->slot, call->mpis, __ATOMIC_RELEASE);
}

static void straight_back(const struct disti_object *object, const struct disti_import *import,
                          void *arg)
{
    const struct straight_call *call = straight_find(object, import);

    (void)arg;
    if (call && *import->slot == call->mpis)
        __atomic_store_n(import->slot, call->libdist, __ATOMIC_RELEASE);
}

static int straight_visit(struct dl_phdr_info *info, size_t size, void *visit)
{
    struct disti_object object;

    (void)size;
    if (disti_object_open(&object, info))
        disti_object_imports(&object, *(disti_object_visit **)visit, NULL);
    return 0;
}

static void straight_point(disti_object_visit *visit, bool past)
{
    pthread_mutex_lock(&straight_lock);
    if (atomic_load(&straight_are_past) != past)
        dl_iterate_phdr(straight_visit, &visit);
    atomic_store(&straight_are_past, past);
    pthread_mutex_unlock(&straight_lock);
}

void disti_straight_begin(void)
{
    for (size_t i = 0; i < STRAIGHT_CALLS; i++)
        straight_learn(&straight_calls[i]);
    straight_point(straight_past, true);
}

void disti_straight_end(void)
{
    if (atomic_load(&straight_are_past))
        straight_point(straight_back, false);
}
