/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: calls by MPI's profiling names, and the slots through which programs call MPI. */
#include "base/ascii.h"
#include "preload/objects.h"
#include "preload/preload.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/*
 * Preload: nonblocking and persistent collectives for Open MPI's Fortran binding.
 *
 * Since Open MPI 5 its binding writes into the request that such a call returns, at an offset that
 * only Open MPI's own collectives have: pointers to arrays that the request is to free. Our
 * requests are shorter, or have other data there. So the binding gets the address of a placeholder,
 * which it may write to, and the conversion that it calls next returns the number of our request:
 *
 *    binding ---- PMPI_Ialltoallv ----> our MPI_Ialltoallv: request R
 *            <--- placeholder ---------
 *            ---- writes into the placeholder
 *            ---- PMPI_Request_c2f(placeholder) ----> PMPI_Request_c2f(R)
 *
 * A request of a call that was handed on is Open MPI's own, and the binding gets that.
 */

#ifdef OPEN_MPI

/* At least the size of a request of an Open MPI collective, about 300 bytes. */
#define FORTRAN_ROOM 4096

/*
 * All threads share it: nobody reads what bindings write. If Fortran's INTEGER is not a C int, the
 * arrays are copies, which are not freed.
 */
static _Alignas(max_align_t) char fortran_placeholder[FORTRAN_ROOM];

/* The request that the placeholder is for, in this thread. */
static DISTI_THREAD_LOCAL MPI_Request fortran_request;

static MPI_Request fortran_stand_in(void)
{
    return (MPI_Request)(void *)fortran_placeholder;
}

static MPI_Fint fortran_c2f(MPI_Request request)
{
    return PMPI_Request_c2f(request == fortran_stand_in() ? fortran_request : request);
}

/* The binding reads the request after a call that failed, too. */
#define FORTRAN_CALL(call, parameters, arguments)                                                  \
    static int fortran_##call parameters                                                           \
    {                                                                                              \
        int code;                                                                                  \
                                                                                                   \
        disti_request_made = MPI_REQUEST_NULL;                                                     \
        *request = fortran_stand_in();                                                             \
        code = call arguments;                                                                     \
        if (code == MPI_SUCCESS && *request == disti_request_made) {                               \
            fortran_request = *request;                                                            \
            *request = fortran_stand_in();                                                         \
        }                                                                                          \
        return code;                                                                               \
    }
#define FORTRAN_WORDS(...) __VA_ARGS__

#define FORTRAN_NONBLOCKING(KIND, name, begin, parameters, arguments, fields)                      \
    FORTRAN_CALL(MPI_##begin, (FORTRAN_WORDS parameters, MPI_Request * request),                   \
                 (FORTRAN_WORDS arguments, request))
DISTI_CALLS(FORTRAN_NONBLOCKING, int, int)

#if DISTI_MPI_PERSISTENT
#define FORTRAN_PERSISTENT(KIND, name, begin, parameters, arguments, fields)                       \
    FORTRAN_CALL(MPI_##name##_init,                                                                \
                 (FORTRAN_WORDS parameters, MPI_Info info, MPI_Request * request),                 \
                 (FORTRAN_WORDS arguments, info, request))
DISTI_CALLS(FORTRAN_PERSISTENT, int, int)
#endif

/* ---- by name ---- */

static const struct {
    const char *name;
    void *function;
} fortran_calls[] = {
#define FORTRAN_ROW(call)                                                                          \
    {                                                                                              \
#call, (void *)fortran_##call                                                              \
    }
#define FORTRAN_ROW_NONBLOCKING(KIND, name, begin, ...) FORTRAN_ROW(MPI_##begin),
    DISTI_CALLS(FORTRAN_ROW_NONBLOCKING, int, int)
#if DISTI_MPI_PERSISTENT
#define FORTRAN_ROW_PERSISTENT(KIND, name, ...) FORTRAN_ROW(MPI_##name##_init),
        DISTI_CALLS(FORTRAN_ROW_PERSISTENT, int, int)
#endif
};

/*
 * The function that serves call MPI_X for a Fortran binding, in place of our MPI_X. NULL: our MPI_X
 * serves it. The binding's PMPI_Request_c2f must be
 * fortran_conversion.
 */
static void *fortran_find(const char *call)
{
    for (size_t i = 0; i < sizeof(fortran_calls) / sizeof(fortran_calls[0]); i++) {
        if (strcmp(fortran_calls[i].name, call) == 0)
            return fortran_calls[i].function;
    }
    return NULL;
}

/* PMPI_Request_c2f for the binding. NULL: the MPI needs no other. */
static void *const fortran_conversion = (void *)fortran_c2f;

#else

static void *fortran_find(const char *call)
{
    (void)call;
    return NULL;
}

static void *const fortran_conversion = NULL;

#endif

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

static struct straight_call {
    const char *name;     /* MPI's own; ours has no P before it */
    void *libdist, *mpis; /* NULL: it comes here all the time */
} straight_calls[] = {
    {.name = "PMPI_Wait"},     {.name = "PMPI_Waitall"},  {.name = "PMPI_Waitany"},
    {.name = "PMPI_Waitsome"}, {.name = "PMPI_Test"},     {.name = "PMPI_Testall"},
    {.name = "PMPI_Testany"},  {.name = "PMPI_Testsome"}, {.name = "PMPI_Request_get_status"},
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

/* arg: true to point it past us. Of the program itself a slot is ours too that the dynamic linker
 * has not filled yet. */
static void straight_point(const struct disti_object *object, const struct disti_import *import,
                           void *arg)
{
    const struct straight_call *call = straight_find(object, import);
    bool past = *(const bool *)arg;

    if (call && (*import->slot == (past ? call->libdist : call->mpis) ||
                 (past && !*object->info->dlpi_name)))
        __atomic_store_n(import->slot, past ? call->mpis : call->libdist, __ATOMIC_RELEASE);
}

static int straight_visit(struct dl_phdr_info *info, size_t size, void *past)
{
    struct disti_object object;

    (void)size;
    if (disti_object_open(&object, info))
        disti_object_slots(&object, false, straight_point, past);
    return 0;
}

static void straight_point_all(bool past)
{
    pthread_mutex_lock(&straight_lock);
    if (atomic_load(&straight_are_past) != past)
        dl_iterate_phdr(straight_visit, &past);
    atomic_store(&straight_are_past, past);
    pthread_mutex_unlock(&straight_lock);
}

void disti_straight_begin(void)
{
    for (struct straight_call *call = straight_calls; call < straight_calls + STRAIGHT_CALLS;
         call++) {
        call->libdist = dlsym(RTLD_DEFAULT, call->name + 1);
        call->mpis = straight_is_here(call->libdist) ? dlsym(RTLD_NEXT, call->name) : NULL;
    }
    straight_point_all(true);
}

void disti_straight_end(void)
{
    if (atomic_load(&straight_are_past))
        straight_point_all(false);
}

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

/* NULL: the import is none of ours to point. `converts` as in imports_convert. */
static void *imports_target(const struct disti_object *object, const char *name, bool converts,
                            bool *offers_p)
{
    void *target = disti_object_find(&imports_own, name + 1), *fortran = NULL;

    *offers_p = false;
    if (strcmp(name, imports_first) == 0)
        return imports_first_next;
    if (!target)
        return NULL;
    *offers_p = imports_offers(object, name + 1);
    if (*offers_p) { /* a binding offers the call to Fortran alone */
        if (converts && !disti_object_find(object, name + 1))
            fortran = fortran_find(name + 1);
        return fortran ? fortran : target;
    }
    /* Requests of libdist's modules are none of the program's. */
    return imports_is_of_requests(name) && !disti_object_find(object, "dist_module_entry") ? target
                                                                                           : NULL;
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
    void *target = fortran_conversion;
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
    disti_object_slots(&object, false, imports_convert, &converts);
    disti_object_slots(&object, false, imports_point, &converts);
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

int disti_mpi_init(int *argc, char ***argv, int required, int *provided)
{
    void *next = dlsym(RTLD_NEXT, required == DISTI_NO_LEVEL ? "PMPI_Init" : "PMPI_Init_thread");

    return next ? disti_init_by(next, argc, argv, required, provided) : MPI_ERR_INTERN;
}

/* libdist's own modules call it too. */
int PMPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    if (disti_mpi_is_foreign())
        return disti_foreign_init(argc, argv, required, provided);
    return imports_serve() ? MPI_Init_thread(argc, argv, required, provided)
                           : disti_mpi_init(argc, argv, required, provided);
}

int PMPI_Init(int *argc, char ***argv)
{
    if (disti_mpi_is_foreign())
        return disti_foreign_init(argc, argv, DISTI_NO_LEVEL, NULL);
    return imports_serve() ? MPI_Init(argc, argv)
                           : disti_mpi_init(argc, argv, DISTI_NO_LEVEL, NULL);
}
