/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Preload: programs whose MPI has an ABI that is not served.
 *
 * Its handles may be longer than those of the MPI that this library was built for, so our functions
 * cannot even hand a call on. They must not be called at all:
 *
 *    before:  program ---- MPI_Send -----> this library's own MPI
 *                    \---- MPI_Bcast ----> here
 *    after:   program ---- MPI_Send -----\
 *                    \---- MPI_Bcast -----+-> the program's MPI
 *
 * So what that MPI defines is hidden in this library and in its MPI, where later searches of the
 * dynamic linker would find it, and slots that are filled with it already are filled again.
 */
#include "preload/names/foreign.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct dl_phdr_info foreign_info;
static struct disti_object foreign_mpi;

/* ---- the objects that are loaded ---- */

/* Copies: the dynamic linker's lock is not to be held while it searches. */
struct foreign_object {
    struct dl_phdr_info info;
    bool hidden;
};

struct foreign_objects {
    struct foreign_object *entries;
    size_t count, room;
};

static int foreign_collect(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct foreign_objects *objects = arg;

    (void)size;
    if (objects->count == objects->room) {
        size_t room = objects->room ? 2 * objects->room : 64;
        struct foreign_object *entries = realloc(objects->entries, room * sizeof(*entries));

        if (!entries)
            return ENOMEM;
        objects->entries = entries;
        objects->room = room;
    }
    objects->entries[objects->count++] = (struct foreign_object){*info, false};
    return 0;
}

/* This library, and every MPI but the program's. */
static bool foreign_is_hidden(const struct disti_object *object)
{
    if (object->dynamic == foreign_mpi.dynamic)
        return false;
    return object->dynamic == _DYNAMIC || disti_object_find(object, "PMPI_Init");
}

/* ---- hiding ---- */

/* Our own of these say once that calls are passed. */
static bool foreign_is_kept(const char *name)
{
    static const char *const kept[] = {"MPI_Init", "MPI_Init_thread", "PMPI_Init",
                                       "PMPI_Init_thread"};

    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        if (strcmp(kept[i], name) == 0)
            return true;
    }
    return false;
}

/* arg: the object. */
static bool foreign_hides(const char *name, void *arg)
{
    const struct disti_object *object = arg;

    if (object->dynamic == _DYNAMIC && foreign_is_kept(name))
        return false;
    return disti_object_find(&foreign_mpi, name) != NULL;
}

/* ---- slots that are filled ---- */

/* Not in the dynamic linker's search if the program's MPI was opened for one library alone. */
static void *foreign_find(void *where, const char *name)
{
    void *found = dlsym(where, name);

    return found ? found : disti_object_find(&foreign_mpi, name);
}

/* arg: the hidden object that the slot may point to. */
static void foreign_refill(const struct disti_object *object, const struct disti_import *import,
                           void *arg)
{
    const struct disti_object *hidden = arg;

    if (!disti_object_contains(hidden, *import->slot) ||
        (hidden->dynamic == _DYNAMIC && foreign_is_kept(import->name)) ||
        !disti_object_find(&foreign_mpi, import->name))
        return;
    disti_object_write(object, import->slot, foreign_find(RTLD_DEFAULT, import->name));
}

static void foreign_refill_all(const struct foreign_objects *objects, struct disti_object *hidden)
{
    for (size_t i = 0; i < objects->count; i++) {
        struct disti_object object;

        if (disti_object_open(&object, &objects->entries[i].info) &&
            object.dynamic != hidden->dynamic)
            disti_object_slots(&object, foreign_refill, hidden);
    }
}

static bool foreign_pass(const struct foreign_objects *objects)
{
    struct disti_object object;

    for (size_t i = 0; i < objects->count; i++) {
        struct foreign_object *entry = &objects->entries[i];

        entry->hidden = disti_object_open(&object, &entry->info) && foreign_is_hidden(&object);
        if (entry->hidden && !disti_object_hide(&object, foreign_hides, &object))
            return false;
    }
    for (size_t i = 0; i < objects->count; i++) {
        if (objects->entries[i].hidden && disti_object_open(&object, &objects->entries[i].info))
            foreign_refill_all(objects, &object);
    }
    return true;
}

bool disti_foreign_pass(const struct disti_object *mpi)
{
    struct foreign_objects objects = {0};
    int error;
    bool good;

    foreign_info = *mpi->info;
    foreign_mpi = *mpi;
    foreign_mpi.info = &foreign_info;
    error = dl_iterate_phdr(foreign_collect, &objects);
    good = !error && foreign_pass(&objects);
    free(objects.entries);
    if (error)
        errno = error;
    return good;
}

/* ---- beginning ---- */

/*
 * The function that comes after ours, of the name PMPI_X. A tool's MPI_X, or the MPI's, may come
 * back to us by the name PMPI_X, so the first call alone is by the name MPI_X.
 */
static void *foreign_next(const char *name)
{
    static bool called;
    bool again = called;

    called = true;
    return foreign_find(RTLD_NEXT, again ? name : name + 1);
}

int disti_foreign_init(int *argc, char ***argv)
{
    int (*init)(int *, char ***);

    *(void **)&init = foreign_next("PMPI_Init");
    return init(argc, argv);
}

int disti_foreign_init_thread(int *argc, char ***argv, int required, int *provided)
{
    int (*init)(int *, char ***, int, int *);

    *(void **)&init = foreign_next("PMPI_Init_thread");
    return init(argc, argv, required, provided);
}
