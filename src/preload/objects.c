/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: what ELF says of the objects that are loaded. */
#include "preload/objects.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if __ELF_NATIVE_CLASS == 64
#define OBJECT_SYMBOL(info) ELF64_R_SYM(info)
#else
#define OBJECT_SYMBOL(info) ELF32_R_SYM(info)
#endif

/* An entry of its dynamic section, as a number or an address; 0, NULL: there is none. */
static size_t object_value(const struct disti_object *object, ElfW(Sxword) tag)
{
    const ElfW(Dyn) *entry = object->dynamic;

    while (entry->d_tag != DT_NULL && entry->d_tag != tag)
        entry++;
    return entry->d_tag == tag ? entry->d_un.d_val : 0;
}

/* Dynamic linkers put addresses there, or leave what the file says. */
static const void *object_address(const struct disti_object *object, ElfW(Sxword) tag)
{
    uintptr_t value = object_value(object, tag), base = object->info->dlpi_addr;

    return (const void *)(value && value < base ? value + base : value);
}

bool disti_object_open(struct disti_object *object, const struct dl_phdr_info *info)
{
    *object = (struct disti_object){.info = info};
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

const char *disti_object_name(const struct disti_object *object)
{
    size_t soname = object_value(object, DT_SONAME);

    return soname ? object->names + soname : object->info->dlpi_name;
}

/* NULL: it is not loaded from the file. */
static const ElfW(Phdr) * object_segment(const struct disti_object *object, const void *address)
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

bool disti_object_contains(const struct disti_object *object, const void *address)
{
    return object_segment(object, address) != NULL;
}

/* ---- what it defines ---- */

static bool object_is_named(const struct disti_object *object, uint32_t symbol, const char *name)
{
    return strcmp(object->names + object->symbols[symbol].st_name, name) == 0;
}

static uint32_t object_gnu_hash_of(const char *name)
{
    uint32_t hash = 5381;

    while (*name)
        hash = hash * 33 + (unsigned char)*name++;
    return hash;
}

/* Number of the symbol; 0: there is none. */
static uint32_t object_find_gnu(const struct disti_object *object, const char *name)
{
    const uint32_t *table = object->gnu_hash, *buckets, *chain;
    uint32_t hash = object_gnu_hash_of(name), i;

    if (!table[0])
        return 0;
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

static uint32_t object_hash_of(const char *name)
{
    uint32_t hash = 0;

    while (*name) {
        hash = (hash << 4) + (unsigned char)*name++;
        hash = (hash ^ (hash >> 24 & 0xf0)) & 0x0fffffff;
    }
    return hash;
}

/* The same in the table that every linker made once, which has what is imported too. */
static uint32_t object_find_old(const struct disti_object *object, const char *name)
{
    const uint32_t *table = object->hash, *chain = table + 2 + table[0];
    uint32_t i = table[0] ? table[2 + object_hash_of(name) % table[0]] : 0;

    while (i && (object->symbols[i].st_shndx == SHN_UNDEF || !object_is_named(object, i, name)))
        i = chain[i];
    return i;
}

void *disti_object_find(const struct disti_object *object, const char *name)
{
    uint32_t symbol = 0;

    if (object->gnu_hash)
        symbol = object_find_gnu(object, name);
    else if (object->hash)
        symbol = object_find_old(object, name);
    if (!symbol || !object->symbols[symbol].st_value) /* none, or hidden */
        return NULL;
    return (void *)(object->info->dlpi_addr + object->symbols[symbol].st_value);
}

/* ---- hiding what it defines ---- */

/* Symbols that searches can find: [first, end) has them all. */
static void object_bounds(const struct disti_object *object, size_t *first_p, size_t *end_p)
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

/* The dynamic linker passes over a symbol without a value. */
bool disti_object_hide(const struct disti_object *object, disti_object_wanted *wanted, void *arg)
{
    const ElfW(Phdr) *segment = object_segment(object, object->symbols);
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start, end;
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

        if (symbol->st_shndx != SHN_UNDEF && wanted(object->names + symbol->st_name, arg))
            symbol->st_value = 0;
    }
    mprotect((void *)start, end - start, protection);
    return true;
}

/* ---- what it has from others ---- */

struct object_walk {
    const struct disti_object *object;
    disti_object_visit *visit;
    void *arg;
    bool own;
};

static void object_slot(const struct object_walk *walk, ElfW(Addr) offset, size_t number,
                        bool called)
{
    const struct disti_object *object = walk->object;
    const ElfW(Sym) *symbol = &object->symbols[number];
    const struct disti_import import = {
        .name = object->names + symbol->st_name,
        .slot = (void **)(object->info->dlpi_addr + offset),
        .called = called,
    };
    bool own = walk->own && (symbol->st_info & 0xf) == STT_FUNC;

    if (number && (symbol->st_shndx == SHN_UNDEF || own))
        walk->visit(object, &import, walk->arg);
}

void disti_object_slots(const struct disti_object *object, bool own, disti_object_visit *visit,
                        void *arg)
{
    const struct object_walk walk = {object, visit, arg, own};
    const char *calls = object_address(object, DT_JMPREL),
               *end = calls + object_value(object, DT_PLTRELSZ);
    const ElfW(Rela) *pointer = object_address(object, DT_RELA);
    size_t entry =
        object_value(object, DT_PLTREL) == DT_RELA ? sizeof(ElfW(Rela)) : sizeof(ElfW(Rel));

    for (; calls && calls < end; calls += entry) {
        const ElfW(Rel) *call = (const void *)calls;

        object_slot(&walk, call->r_offset, OBJECT_SYMBOL(call->r_info), true);
    }
    for (size_t n = object_value(object, DT_RELASZ) / sizeof(*pointer); n; n--, pointer++) {
        if (!pointer->r_addend)
            object_slot(&walk, pointer->r_offset, OBJECT_SYMBOL(pointer->r_info), false);
    }
}

/* What the dynamic linker made read-only begins and ends with a page. */
bool disti_object_seals(const struct disti_object *object, void **slot)
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

bool disti_object_write(const struct disti_object *object, void **slot, void *target)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *start = (void *)((uintptr_t)slot / page * page);
    bool sealed = disti_object_seals(object, slot);

    if (sealed && mprotect(start, page, PROT_READ | PROT_WRITE) != 0)
        return false;
    __atomic_store_n(slot, target, __ATOMIC_RELEASE);
    if (sealed)
        mprotect(start, page, PROT_READ);
    return true;
}
