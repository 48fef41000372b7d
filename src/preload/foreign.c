/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: programs whose MPI is not the one that this library was built for. */
#include "backends/mpi/abi.h"
#include "preload/preload.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- hiding ---- */

/* Our own of these say once that calls are passed. */
static bool foreign_is_kept(const char *name)
{
    name += *name == 'P';
    return strcmp(name, "MPI_Init") == 0 || strcmp(name, "MPI_Init_thread") == 0;
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
            disti_object_slots(&object, true, foreign_refill, hidden);
    }
}

static bool foreign_pass(const struct foreign_objects *objects)
{
    struct disti_object object;

    for (size_t i = 0; i < objects->count; i++) {
        struct foreign_object *entry = &objects->entries[i];

        /* this library, and every MPI but the program's */
        entry->hidden = disti_object_open(&object, &entry->info) &&
                        object.dynamic != foreign_mpi.dynamic &&
                        (object.dynamic == _DYNAMIC || disti_object_find(&object, "PMPI_Init"));
        if (entry->hidden && !disti_object_hide(&object, foreign_hides, &object))
            return false;
    }
    for (size_t i = 0; i < objects->count; i++) {
        if (objects->entries[i].hidden && disti_object_open(&object, &objects->entries[i].info))
            foreign_refill_all(objects, &object);
    }
    return true;
}

/*
 * The program's MPI is this one: from now on its calls go there and not to this library, other than
 * MPI_Init and MPI_Init_thread. False: they cannot be passed, for the reason in errno.
 */
static bool foreign_redirect(const struct disti_object *mpi)
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

int disti_foreign_init(int *argc, char ***argv, int required, int *provided)
{
    return disti_init_by(
        foreign_next(required == DISTI_NO_LEVEL ? "PMPI_Init" : "PMPI_Init_thread"), argc, argv,
        required, provided);
}

/* Preload: is the program's MPI the one that this library was built for? */

#ifdef OPEN_MPI
#define FLAVOUR "Open MPI"
#define FLAVOUR_ABI DISTI_MPI_ABI_OPENMPI
#else
#define FLAVOUR "MPICH"
#define FLAVOUR_ABI DISTI_MPI_ABI_MPICH
#endif

/* ---- the MPIs that are loaded ---- */

/*
 * All MPIs that were there when the program began: this library brings one itself. By the name of a
 * call we may get that one, where the program's own is only what its Fortran binding needs.
 */
static struct flavour_mpi {
    struct dl_phdr_info info;
    struct disti_object object;
} flavour_mpis[8];
static size_t flavour_count;

static bool flavour_open(struct flavour_mpi *mpi, const struct dl_phdr_info *info)
{
    mpi->info = *info;
    return disti_object_open(&mpi->object, &mpi->info) && mpi->object.dynamic != _DYNAMIC &&
           disti_object_find(&mpi->object, "PMPI_Init");
}

static bool flavour_is_standard_file(const struct disti_object *object)
{
    return disti_mpi_is_standard_file(object->info->dlpi_name) ||
           disti_mpi_is_standard_file(disti_object_name(object));
}

static int flavour_find(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    (void)arg;
    flavour_count += flavour_open(&flavour_mpis[flavour_count], info);
    return flavour_count == sizeof(flavour_mpis) / sizeof(flavour_mpis[0]);
}

/* arg: where it is stored. */
static int flavour_find_standard(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct flavour_mpi *mpi = arg;

    (void)size;
    return flavour_open(mpi, info) && flavour_is_standard_file(&mpi->object);
}

/* ---- what they are ---- */

/* An MPI that has the standard ABI under another name says so; other MPIs say -1. May be asked
 * before MPI_Init. */
static bool flavour_says_standard(const struct disti_object *object)
{
    int (*ask)(int *major, int *minor);
    int major = -1, minor = -1;

    *(void **)&ask = disti_object_find(object, "PMPI_Abi_get_version");
    return ask && ask(&major, &minor) == 0 && major > 0;
}

static void flavour_version(const struct disti_object *object, char text[DISTI_MPI_VERSION_TEXT])
{
    int (*version)(char *text, int *length);
    int length = 0;

    text[0] = '\0';
    *(void **)&version = disti_object_find(object, "PMPI_Get_library_version");
    if (version)
        version(text, &length);
    text[strcspn(text, ",\n")] = '\0';
}

/* text: the beginning of its version. */
static enum disti_mpi_abi flavour_abi(const struct disti_object *object,
                                      char text[DISTI_MPI_VERSION_TEXT])
{
    flavour_version(object, text);
    if (flavour_is_standard_file(object) || flavour_says_standard(object))
        return DISTI_MPI_ABI_STANDARD;
    return disti_mpi_abi_of(disti_object_name(object), text,
                            disti_object_find(object, DISTI_MPI_OPENMPI_HANDLE));
}

/* ---- an MPI that is not served ---- */

static struct flavour_foreign {
    struct flavour_mpi mpi;
    enum disti_mpi_abi abi;
    enum { FLAVOUR_NONE, FLAVOUR_PASSED, FLAVOUR_STUCK } state;
    int error; /* STUCK: of the system */
    bool said;
} flavour_foreign;

/* Its calls go past this library. */
static void flavour_pass(const struct flavour_mpi *mpi, enum disti_mpi_abi abi)
{
    struct flavour_foreign *foreign = &flavour_foreign;

    foreign->mpi = *mpi;
    foreign->mpi.object.info = &foreign->mpi.info;
    foreign->abi = abi;
    foreign->state = foreign_redirect(&foreign->mpi.object) ? FLAVOUR_PASSED : FLAVOUR_STUCK;
    foreign->error = errno;
}

/* Only the file's name is looked at: the library may not be ready to be called. */
static bool flavour_pass_standard(void)
{
    struct flavour_mpi standard;

    if (!dl_iterate_phdr(flavour_find_standard, &standard))
        return false;
    flavour_pass(&standard, DISTI_MPI_ABI_STANDARD);
    return true;
}

/* Before MPI_Init too: programs may begin MPI by a session instead. */
__attribute__((constructor)) static void flavour_begin(void)
{
    dl_iterate_phdr(flavour_find, NULL);
    flavour_pass_standard();
}

/* The MPIs that were loaded at the beginning. */
static void flavour_pass_unknown(void)
{
    char text[DISTI_MPI_VERSION_TEXT];

    for (size_t i = 0; i < flavour_count && flavour_foreign.state == FLAVOUR_NONE; i++) {
        enum disti_mpi_abi abi = flavour_abi(&flavour_mpis[i].object, text);

        if (abi == DISTI_MPI_ABI_STANDARD || abi == DISTI_MPI_ABI_UNKNOWN)
            flavour_pass(&flavour_mpis[i], abi);
    }
}

/* Launchers tell which rank this is. */
static bool flavour_is_first(void)
{
    static const char *const ranks[] = {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK",
                                        "SLURM_PROCID"};

    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
        const char *rank = secure_getenv(ranks[i]);

        if (rank)
            return strcmp(rank, "0") == 0;
    }
    return true;
}

static void flavour_say_passed(const struct flavour_foreign *foreign)
{
    const char *file = disti_mpi_file_name(disti_object_name(&foreign->mpi.object));
    char text[DISTI_MPI_VERSION_TEXT];

    flavour_version(&foreign->mpi.object, text);
    if (foreign->abi == DISTI_MPI_ABI_STANDARD)
        fprintf(stderr,
                "libdist: MPI serves all calls itself: the program is built for MPI's standard ABI "
                "(%s), which libdist_mpi.so does not support. Build the program with " FLAVOUR
                "'s own mpicc, or do not preload libdist_mpi.so\n",
                file);
    else
        fprintf(stderr,
                "libdist: MPI serves all calls itself: the program's MPI (%s: %s) is neither Open "
                "MPI nor has MPICH's ABI. Build the program with " FLAVOUR
                ", or do not preload libdist_mpi.so\n",
                file, *text ? text : "unknown version");
}

bool disti_mpi_is_foreign(void)
{
    struct flavour_foreign *foreign = &flavour_foreign;

    if (foreign->state == FLAVOUR_NONE && !flavour_pass_standard())
        flavour_pass_unknown();
    if (foreign->state == FLAVOUR_PASSED && !foreign->said && flavour_is_first())
        flavour_say_passed(foreign);
    foreign->said = true;
    return foreign->state == FLAVOUR_PASSED;
}

/* ---- the other MPI that is served ---- */

bool disti_mpi_is_own(void)
{
    char text[DISTI_MPI_VERSION_TEXT];
    bool own = true;

    if (flavour_foreign.state == FLAVOUR_STUCK) {
        fprintf(stderr,
                "libdist: libdist_mpi.so does not support the program's MPI (%s) and cannot pass "
                "calls to it: %s. Do not preload libdist_mpi.so\n",
                disti_object_name(&flavour_foreign.mpi.object), strerror(flavour_foreign.error));
        return false;
    }
    for (size_t i = 0; i < flavour_count && own; i++)
        own = flavour_abi(&flavour_mpis[i].object, text) == FLAVOUR_ABI;
    if (!own)
        fprintf(stderr,
                "libdist: this libdist_mpi.so is for " FLAVOUR ", but the program runs %s: preload "
                "that MPI's libdist_mpi.so, from the folder beside this one\n",
                text);
    return own;
}
