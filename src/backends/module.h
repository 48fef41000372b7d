/* SPDX-License-Identifier: BSD-3-Clause */
/* Modules: where they are, and how one is loaded; private to this floor. */
#ifndef DISTI_BACKENDS_MODULE_H
#define DISTI_BACKENDS_MODULE_H

#include <dist/backend.h>

#include <limits.h>

/* A module's name has fewer characters than this. */
#define DISTI_MODULE_NAME 64

/* A module that was loaded and checked. It stays so for the life of the process. */
struct disti_module {
    struct disti_module *next;
    const struct dist_module *entry;
    char path[PATH_MAX];
};

/*
 * module.c: loads dist_NAME.so, the first that there is, and checks all of it but the backend's
 * name. On failure the reason is written, which names the file: ERR_NO_BACKEND, or ERR_ABI if it
 * must be built again. A module's constructors run in this process: one that crashes takes it
 * along.
 */
dist_status disti_module_load(const char *name, const struct disti_module **module_p, char *reason,
                              size_t reason_size);

/* True if the module is loaded already. */
bool disti_module_is_loaded(const char *name);

/* module.c: can dlopen be given this file, and is it no other user's? Else the reason. */
bool disti_module_loadable(const char *path, char *reason, size_t reason_size);

/* ---- module.c ---- */

/* The files of that name, first to last; returns how many were written, `room` at most. */
int disti_module_locate(const char *name, char paths[][PATH_MAX], int room);

/* The folders where modules are looked for, on one line, and what is wrong with each. */
size_t disti_module_folders(char *text, size_t size);

/* The names of all modules in these folders, sorted; `names` is the caller's to free. */
struct disti_module_names {
    char (*names)[DISTI_MODULE_NAME];
    int count;
};
void disti_module_names(struct disti_module_names *names_p);

#endif
