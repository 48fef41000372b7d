/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Preload: calls that come to MPI by its profiling names.
 *
 * A Fortran binding and a profiling tool offer a call, and have MPI do it by its PMPI_ name:
 *
 *    Fortran program ---- mpi_allreduce_ ----> binding ---- PMPI_Allreduce ----\
 *    C program ---------- MPI_Allreduce -----> tool ------- PMPI_Allreduce -----+----> here
 *
 * To define the PMPI_ names here would take in more: parts of MPI (ROMIO) and libdist's own modules
 * call each other by them. So the import of PMPI_X is pointed at our MPI_X in those objects alone
 * that offer X too. An import is a slot of the object, which the dynamic linker has filled or will.
 *
 * What starts requests, waits for them and frees them comes here from all objects but libdist's
 * modules: MPI's own could wait for ever for an operation of ours, and ours do any request.
 */
#include "base/ascii.h"
#include "preload/names/foreign.h"
#include "preload/names/fortran.h"
#include "preload/names/objects.h"
#include "preload/serve.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Longer than the names of all calls. */
#define IMPORTS_NAME 128

/* ---- what an object offers ---- */

/* Does it offer MPI_X to others: to C, or to Fortran as compilers and modules name it? */
static bool imports_offers(const struct disti_object *object, const char *call)
{
    static const char *const endings[] = {"_", "__", "_f08_", "_f08ts_"};
    char name[IMPORTS_NAME];
    size_t length = strlen(call);

    if (disti_object_find(object, call))
        return true;
    if (length + sizeof("_f08ts_") > sizeof(name))
        return false;
    for (size_t i = 0; i < length; i++)
        name[i] = disti_ascii_lower(call[i]);
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        strcpy(name + length, endings[i]);
        if (disti_object_find(object, name))
            return true;
    }
    return false;
}

/* ---- pointing imports at our calls ---- */

/* Guards what follows. */
static pthread_mutex_t imports_lock = PTHREAD_MUTEX_INITIALIZER;
static struct dl_phdr_info imports_own_info;
static struct disti_object imports_own; /* this library */
static int imports_pointed;             /* how many slots are, of objects that offer the call */

/* What a binding calls first comes here until its imports are pointed; see below. */
#ifdef OPEN_MPI
static const char *const imports_first = "PMPI_Comm_f2c";
#else
static const char *const imports_first = "PMPI_Comm_rank";
#endif
static void *imports_first_next;

static bool imports_write(const struct disti_object *object, void **slot, void *target)
{
    if (disti_object_write(object, slot, target))
        return true;
    fprintf(stderr, "libdist: MPI serves calls from '%s' itself: %s\n", object->info->dlpi_name,
            strerror(errno));
    return false;
}

/* Is it one of libdist's modules, whose requests are none of the program's? */
static bool imports_is_module(const struct disti_object *object)
{
    return disti_object_find(object, "dist_module_entry");
}

static bool imports_is_of_requests(const char *name)
{
    static const char *const beginnings[] = {"PMPI_Wait", "PMPI_Test", "PMPI_Start",
                                             "PMPI_Request_", "PMPI_Cancel"};

    for (size_t i = 0; i < sizeof(beginnings) / sizeof(beginnings[0]); i++) {
        if (strncmp(name, beginnings[i], strlen(beginnings[i])) == 0)
            return true;
    }
    return false;
}

/* The function for an object that offers the call; `converts` as in imports_convert. */
static void *imports_target_offered(const struct disti_object *object, const char *call,
                                    bool converts)
{
    bool binding = converts && !disti_object_find(object, call);
    void *target = binding ? disti_fortran_find(call) : NULL;

    return target ? target : disti_object_find(&imports_own, call);
}

/* NULL: the import is none of ours to point. */
static void *imports_target(const struct disti_object *object, const char *name, bool converts,
                            bool *offers_p)
{
    void *target = disti_object_find(&imports_own, name + 1);

    *offers_p = false;
    if (strcmp(name, imports_first) == 0)
        return imports_first_next;
    if (!target)
        return NULL;
    *offers_p = imports_offers(object, name + 1);
    if (*offers_p)
        return imports_target_offered(object, name + 1, converts);
    return imports_is_of_requests(name) && !imports_is_module(object) ? target : NULL;
}

static void imports_point(const struct disti_object *object, const struct disti_import *import,
                          void *arg)
{
    const bool *converts = arg;
    void *target;
    bool offers;

    if (strncmp(import->name, "PMPI", 4) != 0)
        return;
    target = imports_target(object, import->name, *converts, &offers);
    if (target && *import->slot != target)
        imports_pointed += imports_write(object, import->slot, target) && offers;
}

/* *arg: the object converts requests to Fortran by our function, which knows the placeholder. */
static void imports_convert(const struct disti_object *object, const struct disti_import *import,
                            void *arg)
{
    void *target = disti_fortran_c2f();
    bool *converts = arg;

    if (!target || strcmp(import->name, "PMPI_Request_c2f") != 0)
        return;
    *converts = *import->slot == target || imports_write(object, import->slot, target);
}

static int imports_point_all(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct disti_object object;
    bool converts = false;

    (void)size;
    (void)arg;
    if (!disti_object_open(&object, info) || object.dynamic == imports_own.dynamic)
        return 0;
    disti_object_imports(&object, imports_convert, &converts);
    disti_object_imports(&object, imports_point, &converts);
    return 0;
}

static int imports_find_own(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct disti_object object;

    (void)size;
    (void)arg;
    if (!disti_object_open(&object, info) || object.dynamic != _DYNAMIC)
        return 0;
    imports_own_info = *info;
    imports_own = object;
    imports_own.info = &imports_own_info;
    return 1;
}

/* True: there is an object whose calls had not been pointed at ours. */
static bool imports_serve(void)
{
    int before;
    bool more;

    pthread_mutex_lock(&imports_lock);
    before = imports_pointed;
    if (imports_own.dynamic || dl_iterate_phdr(imports_find_own, NULL))
        dl_iterate_phdr(imports_point_all, NULL);
    more = imports_pointed != before;
    pthread_mutex_unlock(&imports_lock);
    return more;
}

/* All that the program is linked with, before it runs. */
__attribute__((constructor)) static void imports_begin(void)
{
    imports_first_next = dlsym(RTLD_NEXT, imports_first);
    disti_imports_renew();
}

/* ---- objects that are opened later ---- */

/* Looks at the first only: each says how many there have ever been. */
static int imports_count(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    *(unsigned long long *)arg = info->dlpi_adds;
    return 1;
}

void disti_imports_renew(void)
{
    static atomic_ullong known;
    unsigned long long now = 0;

    dl_iterate_phdr(imports_count, &now);
    if (atomic_exchange(&known, now) != now)
        imports_serve();
}

#ifdef OPEN_MPI
MPI_Comm PMPI_Comm_f2c(MPI_Fint comm)
{
    MPI_Comm (*next)(MPI_Fint);

    disti_imports_renew();
    *(void **)&next = imports_first_next;
    return next(comm);
}
#else
int PMPI_Comm_rank(MPI_Comm comm, int *rank)
{
    int (*next)(MPI_Comm, int *);

    disti_imports_renew();
    *(void **)&next = imports_first_next;
    return next(comm, rank);
}
#endif

int disti_mpi_init(int *argc, char ***argv)
{
    int (*next)(int *, char ***);

    *(void **)&next = dlsym(RTLD_NEXT, "PMPI_Init");
    return next ? next(argc, argv) : MPI_ERR_INTERN;
}

int disti_mpi_init_thread(int *argc, char ***argv, int required, int *provided)
{
    int (*next)(int *, char ***, int, int *);

    *(void **)&next = dlsym(RTLD_NEXT, "PMPI_Init_thread");
    return next ? next(argc, argv, required, provided) : MPI_ERR_INTERN;
}

/* libdist's own modules call it too. */
int PMPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    if (disti_mpi_is_foreign())
        return disti_foreign_init_thread(argc, argv, required, provided);
    return imports_serve() ? MPI_Init_thread(argc, argv, required, provided)
                           : disti_mpi_init_thread(argc, argv, required, provided);
}

int PMPI_Init(int *argc, char ***argv)
{
    if (disti_mpi_is_foreign())
        return disti_foreign_init(argc, argv);
    return imports_serve() ? MPI_Init(argc, argv) : disti_mpi_init(argc, argv);
}
