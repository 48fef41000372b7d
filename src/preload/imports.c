/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Preload: calls through MPI's profiling names, and the import slots (GOT entries) through which
 * programs call MPI.
 */
#include "backends/mpi/abi.h"
#include "base/ascii.h"
#include "preload/preload.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct object {
    const struct dl_phdr_info *info;
    const ElfW(Dyn) * dynamic;
    const ElfW(Sym) * symbols;
    const char *names;        /* symbol names (string table) */
    const uint32_t *gnu_hash; /* hash table of defined symbols; NULL: the object has the older
                               * table, or none */
    const uint32_t *hash;
};

/* An import of an object: the dynamic linker stores the address in the slot. */
struct import {
    const char *name;
    void **slot;
    bool called; /* the slot is used for calls only: the program never reads the address */
};

typedef void object_visit(const struct object *object, const struct import *import, void *arg);

/* ELF data of the loaded objects. */

#if __ELF_NATIVE_CLASS == 64
#define OBJECT_SYMBOL(info) ELF64_R_SYM(info)
#else
#define OBJECT_SYMBOL(info) ELF32_R_SYM(info)
#endif

/* Returns an entry of the dynamic section as a number; 0: there is none. */
static size_t object_value(const struct object *object, ElfW(Sxword) tag)
{
    const ElfW(Dyn) *entry = object->dynamic;

    while (entry->d_tag != DT_NULL && entry->d_tag != tag)
        entry++;
    return entry->d_tag == tag ? entry->d_un.d_val : 0;
}

/*
 * Returns an entry as an address: dynamic linkers relocate it, or leave the offset from the file.
 */
static const void *object_address(const struct object *object, ElfW(Sxword) tag)
{
    uintptr_t value = object_value(object, tag), base = object->info->dlpi_addr;

    return (const void *)(value && value < base ? value + base : value);
}

/* False: the object has no symbols. `info` must outlive the object. */
static bool object_open(struct object *object, const struct dl_phdr_info *info)
{
    *object = (struct object){.info = info};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            object->dynamic = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    }
    if (!object->dynamic)
        return false;
    object->symbols = object_address(object, DT_SYMTAB);
    object->names = object_address(object, DT_STRTAB);
    object->gnu_hash = object_address(object, DT_GNU_HASH);
    object->hash = object_address(object, DT_HASH);
    return object->symbols && object->names;
}

/* Returns the soname, or the file name if there is none. */
static const char *object_name(const struct object *object)
{
    size_t soname = object_value(object, DT_SONAME);

    return soname ? object->names + soname : object->info->dlpi_name;
}

/* Returns the loaded segment that contains the address; NULL: none. */
static const ElfW(Phdr) * object_segment(const struct object *object, const void *address)
{
    const struct dl_phdr_info *info = object->info;

    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];

        if (header->p_type == PT_LOAD &&
            (uintptr_t)address - (info->dlpi_addr + header->p_vaddr) < header->p_memsz)
            return header;
    }
    return NULL;
}

/* ---- defined symbols ---- */

static bool object_is_named(const struct object *object, uint32_t symbol, const char *name)
{
    return strcmp(object->names + object->symbols[symbol].st_name, name) == 0;
}

/* Returns the index of a symbol; 0: not found. */
static uint32_t object_find_gnu(const struct object *object, const char *name)
{
    const uint32_t *table = object->gnu_hash, *buckets, *chain;
    uint32_t hash = 5381, i;

    if (!table[0])
        return 0;
    for (const char *c = name; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    buckets = table + 4 + table[2] * (sizeof(ElfW(Addr)) / sizeof(*table));
    chain = buckets + table[0];
    i = buckets[hash % table[0]];
    while (i) {
        uint32_t link = chain[i - table[1]];

        if ((link | 1) == (hash | 1) && object_is_named(object, i, name))
            return i;
        i = link & 1 ? 0 : i + 1;
    }
    return 0;
}

/* Returns the address of a symbol that the object defines; NULL: not found. */
static void *object_find(const struct object *object, const char *name)
{
    uint32_t symbol = 0;

    if (object->gnu_hash) {
        symbol = object_find_gnu(object, name);
    } else if (object->hash) {
        const uint32_t *table = object->hash, *chain = table + 2 + table[0];
        uint32_t hash = 0, i;

        for (const char *c = name; *c; c++) {
            hash = (hash << 4) + (unsigned char)*c;
            hash = (hash ^ (hash >> 24 & 0xf0)) & 0x0fffffff;
        }
        i = table[0] ? table[2 + hash % table[0]] : 0;
        /* The older hash table, which also contains imported symbols. */
        while (i && (object->symbols[i].st_shndx == SHN_UNDEF || !object_is_named(object, i, name)))
            i = chain[i];
        symbol = i;
    }
    if (!symbol || !object->symbols[symbol].st_value) /* not found, or hidden by foreign_hide */
        return NULL;
    return (void *)(object->info->dlpi_addr + object->symbols[symbol].st_value);
}

/* ---- exported symbols ---- */

/* Sets [first, end) to the range that contains all symbols visible to the dynamic linker. */
static void object_bounds(const struct object *object, size_t *first_p, size_t *end_p)
{
    const uint32_t *table = object->gnu_hash, *buckets, *chain;
    size_t last = 0;

    *first_p = *end_p = 0;
    if (!table) {
        *end_p = object->hash ? object->hash[1] : 0;
        return;
    }
    buckets = table + 4 + table[2] * (sizeof(ElfW(Addr)) / sizeof(*table));
    chain = buckets + table[0];
    for (uint32_t i = 0; i < table[0]; i++)
        last = buckets[i] > last ? buckets[i] : last;
    if (!last)
        return;
    while (!(chain[last - table[1]] & 1))
        last++;
    *first_p = table[1];
    *end_p = last + 1;
}

/* ---- imported symbols ---- */

/*
 * Visits the import slots. own: also those of functions that the object defines itself, which
 * another object's definition may replace.
 */
static void object_slots(const struct object *object, bool own, object_visit *visit, void *arg)
{
    const bool adds = object_value(object, DT_PLTREL) == DT_RELA;
    /* The slots for calls, then those for pointers. */
    const struct {
        const char *entries;
        size_t bytes, entry;
    } lists[] = {
        {object_address(object, DT_JMPREL), object_value(object, DT_PLTRELSZ),
         adds ? sizeof(ElfW(Rela)) : sizeof(ElfW(Rel))},
        {object_address(object, DT_RELA), object_value(object, DT_RELASZ), sizeof(ElfW(Rela))},
    };

    for (int l = 0; l < 2; l++) {
        for (size_t at = 0; lists[l].entries && at < lists[l].bytes; at += lists[l].entry) {
            const ElfW(Rela) *entry = (const void *)(lists[l].entries + at);
            const size_t number = OBJECT_SYMBOL(entry->r_info);
            const ElfW(Sym) *symbol = &object->symbols[number];
            const struct import import = {
                .name = object->names + symbol->st_name,
                .slot = (void **)(object->info->dlpi_addr + entry->r_offset),
                .called = l == 0,
            };

            if (number && (l == 0 || !entry->r_addend) &&
                (symbol->st_shndx == SHN_UNDEF || (own && (symbol->st_info & 0xf) == STT_FUNC)))
                visit(object, &import, arg);
        }
    }
}

/*
 * True if the slot is in RELRO memory, which the dynamic linker has made read-only in whole pages.
 */
static bool object_is_sealed(const struct object *object, void **slot)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)slot;
    const struct dl_phdr_info *info = object->info;

    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + header->p_vaddr, end = start + header->p_memsz;

        if (header->p_type == PT_GNU_RELRO && at >= start / page * page && at < end / page * page)
            return true;
    }
    return false;
}

/* Writes to a slot, also in read-only memory. False: see errno. */
static bool object_write(const struct object *object, void **slot, void *target)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *start = (void *)((uintptr_t)slot / page * page);
    bool sealed = object_is_sealed(object, slot);

    if (sealed && mprotect(start, page, PROT_READ | PROT_WRITE) != 0)
        return false;
    __atomic_store_n(slot, target, __ATOMIC_RELEASE);
    if (sealed)
        mprotect(start, page, PROT_READ);
    return true;
}

/*
 * Preload: programs whose MPI has an ABI that libdist does not support.
 *
 * Its handles may be longer than those of the MPI that this library was built for, so our functions
 * cannot even forward a call. They must not be called at all:
 *
 *    before:  program ---- MPI_Send -----> this library's own MPI
 *                    \---- MPI_Bcast ----> here
 *    after:   program ---- MPI_Send -----\
 *                    \---- MPI_Bcast -----+-> the program's MPI
 *
 * So the symbols that the program's MPI defines are hidden in this library and in its own MPI,
 * where later lookups of the dynamic linker would find them, and slots that refer to these
 * libraries are redirected.
 */

struct flavour_mpi {
    struct dl_phdr_info info;
    struct object object;
};

static struct flavour_foreign {
    struct flavour_mpi mpi; /* the program's MPI */
    enum disti_mpi_abi abi;
    enum { FLAVOUR_NONE, FLAVOUR_REDIRECTED, FLAVOUR_STUCK } state;
    int error; /* STUCK: errno */
    bool printed;
} flavour_foreign;
static const struct object *const foreign_mpi = &flavour_foreign.mpi.object;

/* ---- loaded objects ---- */

/* Copies, since the dynamic linker's lock must not be held during dlsym. */
struct foreign_object {
    struct dl_phdr_info info;
    bool hidden;
};

struct foreign_objects {
    struct foreign_object *entries;
    size_t count, capacity;
};

static int foreign_collect(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct foreign_objects *objects = arg;

    (void)size;
    if (objects->count == objects->capacity) {
        size_t capacity = objects->capacity ? 2 * objects->capacity : 64;
        struct foreign_object *entries = realloc(objects->entries, capacity * sizeof(*entries));

        if (!entries)
            return ENOMEM;
        objects->entries = entries;
        objects->capacity = capacity;
    }
    objects->entries[objects->count++] = (struct foreign_object){*info, false};
    return 0;
}

/* ---- hiding symbols ---- */

/* True for functions that stay visible in this library: they print once that calls bypass it. */
static bool foreign_stays_visible(const char *name)
{
    name += *name == 'P';
    return strcmp(name, "MPI_Init") == 0 || strcmp(name, "MPI_Init_thread") == 0;
}

/*
 * Hides the object's symbols that the program's MPI defines too from later lookups. False: the
 * symbol table cannot be written; see errno.
 */
static bool foreign_hide(const struct object *object)
{
    const ElfW(Phdr) *segment = object_segment(object, object->symbols);
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start, end;
    const bool own = object->dynamic == _DYNAMIC;
    size_t first, last;
    int protection;

    object_bounds(object, &first, &last);
    if (!segment || first == last)
        return true;
    protection = (segment->p_flags & PF_R ? PROT_READ : 0) |
                 (segment->p_flags & PF_W ? PROT_WRITE : 0) |
                 (segment->p_flags & PF_X ? PROT_EXEC : 0);
    start = (uintptr_t)&object->symbols[first] / page * page;
    end = ((uintptr_t)&object->symbols[last] + page - 1) / page * page;
    if (mprotect((void *)start, end - start, protection | PROT_WRITE) != 0)
        return false;
    for (size_t i = first; i < last; i++) {
        ElfW(Sym) *symbol = (ElfW(Sym) *)(uintptr_t)&object->symbols[i];
        const char *name = object->names + symbol->st_name;

        if (symbol->st_shndx != SHN_UNDEF && !(own && foreign_stays_visible(name)) &&
            object_find(foreign_mpi, name))
            symbol->st_value = 0; /* the dynamic linker skips such symbols */
    }
    mprotect((void *)start, end - start, protection);
    return true;
}

/* ---- redirecting slots ---- */

/* dlsym does not find the program's MPI if it was loaded for one library only (RTLD_LOCAL). */
static void *foreign_find(void *where, const char *name)
{
    void *found = dlsym(where, name);

    return found ? found : object_find(foreign_mpi, name);
}

/* Redirects a slot that points into the hidden object `arg`. */
static void foreign_refill(const struct object *object, const struct import *import, void *arg)
{
    const struct object *hidden = arg;

    if (!object_segment(hidden, *import->slot) ||
        (hidden->dynamic == _DYNAMIC && foreign_stays_visible(import->name)) ||
        !object_find(foreign_mpi, import->name))
        return;
    object_write(object, import->slot, foreign_find(RTLD_DEFAULT, import->name));
}

static bool foreign_redirect(const struct foreign_objects *objects)
{
    struct object hidden, object;

    for (size_t i = 0; i < objects->count; i++) {
        struct foreign_object *entry = &objects->entries[i];

        /* Hides this library, and every MPI except the program's. */
        entry->hidden = object_open(&object, &entry->info) &&
                        object.dynamic != foreign_mpi->dynamic &&
                        (object.dynamic == _DYNAMIC || object_find(&object, "PMPI_Init"));
        if (entry->hidden && !foreign_hide(&object))
            return false;
    }
    for (size_t i = 0; i < objects->count; i++) {
        if (!objects->entries[i].hidden || !object_open(&hidden, &objects->entries[i].info))
            continue;
        for (size_t k = 0; k < objects->count; k++) {
            if (object_open(&object, &objects->entries[k].info) && object.dynamic != hidden.dynamic)
                object_slots(&object, true, foreign_refill, &hidden);
        }
    }
    return true;
}

/* ---- initialization ---- */

/*
 * Returns the function that follows ours, for the name PMPI_X. MPI_X of a tool or of the MPI may
 * call our PMPI_X again, so only the first call looks up MPI_X.
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

/* Detects whether the program's MPI is the one that this library was built for. */

#ifdef OPEN_MPI
#define FLAVOUR "Open MPI"
#define FLAVOUR_ABI DISTI_MPI_ABI_OPENMPI
#else
#define FLAVOUR "MPICH"
#define FLAVOUR_ABI DISTI_MPI_ABI_MPICH
#endif

/* ---- loaded MPIs ---- */

/*
 * All MPIs that are loaded at program start; this library itself is linked with one. A lookup of a
 * function by name may find this library's MPI, if the program's own MPI is loaded only through its
 * Fortran binding.
 */
static struct flavour_mpi flavour_mpis[8];
static size_t flavour_count;

static bool flavour_open(struct flavour_mpi *mpi, const struct dl_phdr_info *info)
{
    mpi->info = *info;
    return object_open(&mpi->object, &mpi->info) && mpi->object.dynamic != _DYNAMIC &&
           object_find(&mpi->object, "PMPI_Init");
}

static bool flavour_is_standard_file(const struct object *object)
{
    return disti_mpi_is_standard_file(object->info->dlpi_name) ||
           disti_mpi_is_standard_file(object_name(object));
}

static int flavour_find(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    (void)arg;
    flavour_count += flavour_open(&flavour_mpis[flavour_count], info);
    return flavour_count == sizeof(flavour_mpis) / sizeof(flavour_mpis[0]);
}

/* arg: the result, a struct flavour_mpi. */
static int flavour_find_standard(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct flavour_mpi *mpi = arg;

    (void)size;
    return flavour_open(mpi, info) && flavour_is_standard_file(&mpi->object);
}

/* ---- their ABIs ---- */

static void flavour_version(const struct object *object, char text[DISTI_MPI_VERSION_TEXT])
{
    int (*version)(char *text, int *length);
    int length = 0;

    text[0] = '\0';
    *(void **)&version = object_find(object, "PMPI_Get_library_version");
    if (version)
        version(text, &length);
    text[strcspn(text, ",\n")] = '\0';
}

/*
 * Returns the ABI of an MPI; text becomes the beginning of the MPI's version. An MPI that has the
 * standard ABI under another file name reports the version of this ABI; other MPIs report -1. May
 * be called before MPI_Init.
 */
static enum disti_mpi_abi flavour_abi(const struct object *object,
                                      char text[DISTI_MPI_VERSION_TEXT])
{
    int (*ask)(int *major, int *minor);
    int major = -1, minor = -1;

    flavour_version(object, text);
    *(void **)&ask = object_find(object, "PMPI_Abi_get_version");
    if (flavour_is_standard_file(object) || (ask && ask(&major, &minor) == 0 && major > 0))
        return DISTI_MPI_ABI_STANDARD;
    return disti_mpi_abi_of(object_name(object), text,
                            object_find(object, DISTI_MPI_OPENMPI_HANDLE));
}

/* ---- an unsupported MPI ---- */

/* Redirects all calls except MPI_Init and MPI_Init_thread to this MPI, which is the program's. */
static void flavour_redirect(const struct flavour_mpi *mpi, enum disti_mpi_abi abi)
{
    struct flavour_foreign *foreign = &flavour_foreign;
    struct foreign_objects objects = {0};
    int error;

    foreign->mpi = *mpi;
    foreign->mpi.object.info = &foreign->mpi.info;
    foreign->abi = abi;
    error = dl_iterate_phdr(foreign_collect, &objects);
    foreign->state = !error && foreign_redirect(&objects) ? FLAVOUR_REDIRECTED : FLAVOUR_STUCK;
    foreign->error = error ? error : errno;
    free(objects.entries);
}

/* Checks file names only: the library may not be initialized yet. */
static bool flavour_redirect_standard(void)
{
    struct flavour_mpi standard;

    if (!dl_iterate_phdr(flavour_find_standard, &standard))
        return false;
    flavour_redirect(&standard, DISTI_MPI_ABI_STANDARD);
    return true;
}

/* Runs before main: the program may initialize MPI with a session, without MPI_Init. */
__attribute__((constructor)) static void flavour_begin(void)
{
    dl_iterate_phdr(flavour_find, NULL);
    flavour_redirect_standard();
}

/* True if this is rank 0 by the launcher's variables, or if there are none. */
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

static void flavour_print_redirected(const struct flavour_foreign *foreign)
{
    const char *file = disti_mpi_file_name(object_name(&foreign->mpi.object));
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

    if (foreign->state == FLAVOUR_NONE && !flavour_redirect_standard()) {
        char text[DISTI_MPI_VERSION_TEXT];

        /* The MPIs that were loaded at program start. */
        for (size_t i = 0; i < flavour_count && flavour_foreign.state == FLAVOUR_NONE; i++) {
            enum disti_mpi_abi abi = flavour_abi(&flavour_mpis[i].object, text);

            if (abi == DISTI_MPI_ABI_STANDARD || abi == DISTI_MPI_ABI_UNKNOWN)
                flavour_redirect(&flavour_mpis[i], abi);
        }
    }
    if (foreign->state == FLAVOUR_REDIRECTED && !foreign->printed && flavour_is_first())
        flavour_print_redirected(foreign);
    foreign->printed = true;
    return foreign->state == FLAVOUR_REDIRECTED;
}

/* ---- the other supported MPI ---- */

bool disti_mpi_is_own(void)
{
    char text[DISTI_MPI_VERSION_TEXT];
    bool own = true;

    if (flavour_foreign.state == FLAVOUR_STUCK) {
        fprintf(stderr,
                "libdist: libdist_mpi.so does not support the program's MPI (%s) and cannot "
                "redirect calls to it: %s. Do not preload libdist_mpi.so\n",
                object_name(&flavour_foreign.mpi.object), strerror(flavour_foreign.error));
        return false;
    }
    for (size_t i = 0; i < flavour_count && own; i++)
        own = flavour_abi(&flavour_mpis[i].object, text) == FLAVOUR_ABI;
    if (!own)
        fprintf(stderr,
                "libdist: this libdist_mpi.so is for " FLAVOUR ", but the program runs %s: preload "
                "that MPI's libdist_mpi.so, from the directory beside this one\n",
                text);
    return own;
}

/*
 * Preload: nonblocking and persistent collectives for Open MPI's Fortran binding.
 *
 * Since Open MPI 5 the binding writes pointers to arrays, which the request must free, into the
 * request that such a call returns, at an offset that only Open MPI's own collectives have. Our
 * requests are shorter, or have other data there. So the binding gets the address of a placeholder,
 * to which it may write, and the conversion that it calls next returns the handle of our request:
 *
 *    binding ---- PMPI_Ialltoallv ----> our MPI_Ialltoallv: request R
 *            <--- placeholder ---------
 *            ---- writes into the placeholder
 *            ---- PMPI_Request_c2f(placeholder) ----> PMPI_Request_c2f(R)
 *
 * The request of a forwarded call is Open MPI's own, and is returned to the binding unchanged.
 */

#ifdef OPEN_MPI

/* Larger than a request of an Open MPI collective, which has about 300 bytes. */
#define FORTRAN_PLACEHOLDER_BYTES 4096

/*
 * Shared by all threads: nobody reads what bindings write to it. If Fortran's INTEGER is not a C
 * int, the arrays are copies, which leak.
 */
static _Alignas(max_align_t) char fortran_placeholder[FORTRAN_PLACEHOLDER_BYTES];

/* The request that the placeholder represents in this thread. */
static DISTI_THREAD_LOCAL MPI_Request fortran_request;

static MPI_Request fortran_placeholder_request(void)
{
    return (MPI_Request)(void *)fortran_placeholder;
}

static MPI_Fint fortran_c2f(MPI_Request request)
{
    return PMPI_Request_c2f(request == fortran_placeholder_request() ? fortran_request : request);
}

/* Bindings read *request after a failed call too. */
#define FORTRAN_CALL(call, parameters, arguments)                                                  \
    static int fortran_##call parameters                                                           \
    {                                                                                              \
        int code;                                                                                  \
                                                                                                   \
        disti_last_request = MPI_REQUEST_NULL;                                                     \
        *request = fortran_placeholder_request();                                                  \
        code = call arguments;                                                                     \
        if (code == MPI_SUCCESS && *request == disti_last_request) {                               \
            fortran_request = *request;                                                            \
            *request = fortran_placeholder_request();                                              \
        }                                                                                          \
        return code;                                                                               \
    }
#define FORTRAN_UNWRAP(...) __VA_ARGS__

#define FORTRAN_NONBLOCKING(KIND, name, begin, parameters, arguments, fields)                      \
    FORTRAN_CALL(MPI_##begin, (FORTRAN_UNWRAP parameters, MPI_Request * request),                  \
                 (FORTRAN_UNWRAP arguments, request))
DISTI_CALLS(FORTRAN_NONBLOCKING, int, int)

#if DISTI_MPI_PERSISTENT
#define FORTRAN_PERSISTENT(KIND, name, begin, parameters, arguments, fields)                       \
    FORTRAN_CALL(MPI_##name##_init,                                                                \
                 (FORTRAN_UNWRAP parameters, MPI_Info info, MPI_Request * request),                \
                 (FORTRAN_UNWRAP arguments, info, request))
DISTI_CALLS(FORTRAN_PERSISTENT, int, int)
#endif

/* ---- lookup by name ---- */

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
 * Returns the function that serves MPI_X for a Fortran binding whose PMPI_Request_c2f is
 * fortran_conversion. NULL: MPI_X itself serves it.
 */
static void *fortran_find(const char *call)
{
    for (size_t i = 0; i < sizeof(fortran_calls) / sizeof(fortran_calls[0]); i++) {
        if (strcmp(fortran_calls[i].name, call) == 0)
            return fortran_calls[i].function;
    }
    return NULL;
}

/* Replacement of PMPI_Request_c2f for the binding. NULL: the MPI needs none. */
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
 * Preload: tests and waits bypass this library until it has started its first nonblocking
 * operation.
 *
 *    program ---- MPI_Test ----> MPI              after MPI_Init
 *               \--------------> here ----> MPI   after the first nonblocking operation
 *
 * Programs test for messages millions of times a second, so an additional jump is noticeable. So
 * the slots through which the program calls are redirected to MPI, and back for good. Pointers that
 * the program has stored always refer to this library, and so do slots in memory that is already
 * read-only, since redirecting these back could fail.
 */

static struct bypass_call {
    const char *name;     /* MPI's function; ours is the name without P */
    void *libdist, *mpis; /* addresses of our function and of MPI's; mpis NULL: the call is never
                           * redirected */
} bypass_calls[] = {
    {.name = "PMPI_Wait"},     {.name = "PMPI_Waitall"},  {.name = "PMPI_Waitany"},
    {.name = "PMPI_Waitsome"}, {.name = "PMPI_Test"},     {.name = "PMPI_Testall"},
    {.name = "PMPI_Testany"},  {.name = "PMPI_Testsome"}, {.name = "PMPI_Request_get_status"},
};
#define BYPASS_CALLS (sizeof(bypass_calls) / sizeof(bypass_calls[0]))

static pthread_mutex_t bypass_lock = PTHREAD_MUTEX_INITIALIZER; /* held while slots are written */
static atomic_bool bypass_is_on;

/* ---- which calls ---- */

/*
 * True if the function is in this library. If another preloaded library defines the call before
 * this one, the slots of the call are not changed.
 */
static bool bypass_is_here(void *function)
{
    Dl_info there, here;

    return function && dladdr(function, &there) && dladdr(bypass_calls, &here) &&
           there.dli_fbase == here.dli_fbase;
}

/* ---- slots ---- */

/*
 * Redirects a slot to MPI if *arg is true, else to this library. In the program itself, slots that
 * the dynamic linker has not resolved yet count as ours.
 */
static void bypass_point(const struct object *object, const struct import *import, void *arg)
{
    const struct bypass_call *call = bypass_calls, *end = call + BYPASS_CALLS;
    bool past = *(const bool *)arg; /* past this library */

    while (call < end && (!call->mpis || strcmp(call->name + 1, import->name) != 0))
        call++;
    if (call < end && import->called && !object_is_sealed(object, import->slot) &&
        (*import->slot == (past ? call->libdist : call->mpis) ||
         (past && !*object->info->dlpi_name)))
        __atomic_store_n(import->slot, past ? call->mpis : call->libdist, __ATOMIC_RELEASE);
}

static int bypass_visit(struct dl_phdr_info *info, size_t size, void *past)
{
    struct object object;

    (void)size;
    if (object_open(&object, info))
        object_slots(&object, false, bypass_point, past);
    return 0;
}

static void bypass_point_all(bool past)
{
    pthread_mutex_lock(&bypass_lock);
    if (atomic_load(&bypass_is_on) != past)
        dl_iterate_phdr(bypass_visit, &past);
    atomic_store(&bypass_is_on, past);
    pthread_mutex_unlock(&bypass_lock);
}

void disti_bypass_begin(void)
{
    for (struct bypass_call *call = bypass_calls; call < bypass_calls + BYPASS_CALLS; call++) {
        call->libdist = dlsym(RTLD_DEFAULT, call->name + 1);
        call->mpis = bypass_is_here(call->libdist) ? dlsym(RTLD_NEXT, call->name) : NULL;
    }
    bypass_point_all(true);
}

void disti_bypass_end(void)
{
    if (atomic_load(&bypass_is_on))
        bypass_point_all(false);
}

/*
 * Preload: calls through MPI's profiling names.
 *
 * A Fortran binding or a profiling tool defines a call and forwards it to MPI by its PMPI_ name:
 *
 *    Fortran program ---- mpi_allreduce_ ----> binding ---- PMPI_Allreduce ----\
 *    C program ---------- MPI_Allreduce -----> tool ------- PMPI_Allreduce -----+----> here
 *
 * Defining the PMPI_ names here would intercept too many calls: parts of MPI (ROMIO) and libdist's
 * own modules call MPI by these names. So imports of PMPI_X are redirected to our MPI_X only in
 * objects that define X too. An import is a slot of the object that the dynamic linker has resolved
 * or will resolve.
 *
 * Calls that start, wait for or free requests are redirected in all objects except libdist's
 * modules: MPI's functions could wait forever for our operations, while ours handle any request.
 */

/* Longer than the names of all calls. */
#define IMPORTS_NAME 128

/* ---- calls that an object defines ---- */

/* True if the object defines MPI_X for C or for Fortran, by the names of compilers and modules. */
static bool imports_offers(const struct object *object, const char *call)
{
    static const char *const endings[] = {"_", "__", "_f08_", "_f08ts_"};
    char name[IMPORTS_NAME];
    size_t length = strlen(call);

    if (object_find(object, call))
        return true;
    if (length + sizeof("_f08ts_") > sizeof(name))
        return false;
    for (size_t i = 0; i < length; i++)
        name[i] = disti_ascii_lower(call[i]);
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        strcpy(name + length, endings[i]);
        if (object_find(object, name))
            return true;
    }
    return false;
}

/* ---- redirecting imports to this library ---- */

/* Protects the variables below. */
static pthread_mutex_t imports_lock = PTHREAD_MUTEX_INITIALIZER;
static struct dl_phdr_info imports_own_info;
static struct object imports_own; /* this library */
static int imports_pointed;       /* number of redirected slots, in objects that define the call */

/*
 * The first MPI function that a binding calls: it is intercepted until the binding's imports are
 * redirected; see below.
 */
#ifdef OPEN_MPI
static const char *const imports_first = "PMPI_Comm_f2c";
#else
static const char *const imports_first = "PMPI_Comm_rank";
#endif
static void *imports_first_next;

static bool imports_write(const struct object *object, void **slot, void *target)
{
    if (object_write(object, slot, target))
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

/*
 * Returns the function to which an import is redirected. NULL: it is not redirected. `converts` is
 * the result of imports_convert.
 */
static void *imports_target(const struct object *object, const char *name, bool converts,
                            bool *offers_p)
{
    void *target = object_find(&imports_own, name + 1), *fortran = NULL;

    *offers_p = false;
    if (strcmp(name, imports_first) == 0)
        return imports_first_next;
    if (!target)
        return NULL;
    *offers_p = imports_offers(object, name + 1);
    if (*offers_p) { /* a binding defines the call for Fortran only */
        if (converts && !object_find(object, name + 1))
            fortran = fortran_find(name + 1);
        return fortran ? fortran : target;
    }
    /* Requests of libdist's modules are not the program's. */
    return imports_is_of_requests(name) && !object_find(object, "dist_module_entry") ? target
                                                                                     : NULL;
}

static void imports_point(const struct object *object, const struct import *import, void *arg)
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

/*
 * Redirects PMPI_Request_c2f to our function, which recognizes the placeholder. Sets *arg, a bool,
 * to whether the slot refers to our function.
 */
static void imports_convert(const struct object *object, const struct import *import, void *arg)
{
    void *target = fortran_conversion;
    bool *converts = arg;

    if (!target || strcmp(import->name, "PMPI_Request_c2f") != 0)
        return;
    *converts = *import->slot == target || imports_write(object, import->slot, target);
}

static int imports_point_all(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct object object;
    bool converts = false;

    (void)size;
    (void)arg;
    if (!object_open(&object, info) || object.dynamic == imports_own.dynamic)
        return 0;
    object_slots(&object, false, imports_convert, &converts);
    object_slots(&object, false, imports_point, &converts);
    return 0;
}

static int imports_find_own(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct object object;

    (void)size;
    (void)arg;
    if (!object_open(&object, info) || object.dynamic != _DYNAMIC)
        return 0;
    imports_own_info = *info;
    imports_own = object;
    imports_own.info = &imports_own_info;
    return 1;
}

/* Redirects the imports of all objects. True if calls of another object were redirected. */
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

/* Redirects the imports of all libraries that the program is linked with, before main. */
__attribute__((constructor)) static void imports_begin(void)
{
    imports_first_next = dlsym(RTLD_NEXT, imports_first);
    disti_imports_renew();
}

/* ---- libraries that are loaded later ---- */

/* Reads the number of objects loaded so far: every entry contains it, so reads the first only. */
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

/* libdist's own modules call this function too. */
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
