/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: what ELF says of the objects that are loaded. */
#include "preload/names/objects.h"

#include <string.h>

size_t disti_object_value(const struct disti_object *object, ElfW(Sxword) tag)
{
    const ElfW(Dyn) *entry = object->dynamic;

    while (entry->d_tag != DT_NULL && entry->d_tag != tag)
        entry++;
    return entry->d_tag == tag ? entry->d_un.d_val : 0;
}

/* Dynamic linkers put addresses there, or leave what the file says. */
const void *disti_object_address(const struct disti_object *object, ElfW(Sxword) tag)
{
    uintptr_t value = disti_object_value(object, tag), base = object->info->dlpi_addr;

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
    object->symbols = disti_object_address(object, DT_SYMTAB);
    object->names = disti_object_address(object, DT_STRTAB);
    object->hash = disti_object_address(object, DT_GNU_HASH);
    return object->symbols && object->names;
}

static uint32_t object_hash(const char *name)
{
    uint32_t hash = 5381;

    while (*name)
        hash = hash * 33 + (unsigned char)*name++;
    return hash;
}

void *disti_object_find(const struct disti_object *object, const char *name)
{
    const uint32_t *table = object->hash, *buckets, *chain;
    uint32_t hash = object_hash(name), i;

    if (!table || !table[0])
        return NULL;
    buckets = table + 4 + table[2] * (sizeof(ElfW(Addr)) / sizeof(*table));
    chain = buckets + table[0];
    i = buckets[hash % table[0]];
    while (i) {
        const ElfW(Sym) *symbol = &object->symbols[i];
        uint32_t link = chain[i - table[1]];

        if ((link | 1) == (hash | 1) && strcmp(object->names + symbol->st_name, name) == 0)
            return (void *)(object->info->dlpi_addr + symbol->st_value);
        i = link & 1 ? 0 : i + 1;
    }
    return NULL;
}
