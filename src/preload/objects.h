/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: the program and the shared objects that are loaded, as ELF describes them. */
#ifndef DISTI_PRELOAD_OBJECTS_H
#define DISTI_PRELOAD_OBJECTS_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct disti_object {
    const struct dl_phdr_info *info;
    const ElfW(Dyn) * dynamic;
    const ElfW(Sym) * symbols;
    const char *names;        /* of the symbols */
    const uint32_t *gnu_hash; /* of what it defines; NULL: there is the older one, or none */
    const uint32_t *hash;
};

/* False: it has no symbols. It borrows info. */
bool disti_object_open(struct disti_object *object, const struct dl_phdr_info *info);

/* The address of what the object itself defines by that name; NULL: it does not. */
void *disti_object_find(const struct disti_object *object, const char *name);

/* What the object has from others: the dynamic linker puts an address into the slot. */
struct disti_import {
    const char *name;
    void **slot;
    bool called; /* the slot is for calls alone: the program never sees the address */
};

/* The name that the linker gave it, or its file's if there is none. */
const char *disti_object_name(const struct disti_object *object);

/* True if the address is in its code or data. */
bool disti_object_contains(const struct disti_object *object, const void *address);

/*
 * Hides the names that `wanted` accepts, of those that the object defines: later searches do not
 * find them. False: its symbols cannot be written to, for the reason in errno.
 */
typedef bool disti_object_wanted(const char *name, void *arg);
bool disti_object_hide(const struct disti_object *object, disti_object_wanted *wanted, void *arg);

typedef void disti_object_visit(const struct disti_object *object,
                                const struct disti_import *import, void *arg);

/* own: also slots for functions that the object defines itself, which may be another object's. */
void disti_object_slots(const struct disti_object *object, bool own, disti_object_visit *visit,
                        void *arg);

/* Writes to a slot, in memory that is read-only too. False: it cannot, for the reason in errno. */
bool disti_object_write(const struct disti_object *object, void **slot, void *target);

/* Is the slot in memory that was made read-only once it was filled? */
bool disti_object_seals(const struct disti_object *object, void **slot);

#endif
