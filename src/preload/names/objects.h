/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: the program and the shared objects that are loaded, as ELF describes them. */
#ifndef DISTI_PRELOAD_NAMES_OBJECTS_H
#define DISTI_PRELOAD_NAMES_OBJECTS_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct disti_object {
    const struct dl_phdr_info *info;
    const ElfW(Dyn) * dynamic;
    const ElfW(Sym) * symbols;
    const char *names;    /* of the symbols */
    const uint32_t *hash; /* of what it defines; NULL: nothing */
};

/* False: it has no symbols. It borrows info. */
bool disti_object_open(struct disti_object *object, const struct dl_phdr_info *info);

/* An entry of its dynamic section, as a number or an address; 0, NULL: there is none. */
size_t disti_object_value(const struct disti_object *object, ElfW(Sxword) tag);
const void *disti_object_address(const struct disti_object *object, ElfW(Sxword) tag);

/* The address of what the object itself defines by that name; NULL: it does not. */
void *disti_object_find(const struct disti_object *object, const char *name);

#endif
