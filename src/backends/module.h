/* SPDX-License-Identifier: BSD-3-Clause */
/* Finding and loading modules; private to this directory. */
#ifndef DISTI_BACKENDS_MODULE_H
#define DISTI_BACKENDS_MODULE_H

#include <dist/backend.h>

#include <limits.h>

/* Size of a module's name, including its terminating null. */
#define DISTI_MODULE_NAME 64

/* A module that has been loaded and checked. It stays loaded for the life of the process. */
struct disti_module {
    struct disti_module *next;
    const struct dist_module *entry;
    char path[PATH_MAX];
};

/*
 * Loads the first dist_NAME.so in the module directories and checks its contents, but not the
 * backend's name. The module's constructors run in this process; if one crashes, the process does.
 * On failure writes the reason, which names the file. ERR_NO_BACKEND, or ERR_ABI if the module must
 * be rebuilt.
 */
dist_status disti_module_load(const char *name, const struct disti_module **module_p, char *reason,
                              size_t reason_size);

/* True if the module is already loaded. */
bool disti_module_is_loaded(const char *name);

/* True if the file is a shared object that no other user can write. Otherwise writes the reason. */
bool disti_module_loadable(const char *path, char *reason, size_t reason_size);

/* ---- module directories ---- */

/* Writes the paths of the existing files with that name, in order of precedence, at most
 * `capacity`. Returns their number. */
int disti_module_locate(const char *name, char paths[][PATH_MAX], int capacity);

/*
 * Writes the module directories on one line, with the error for each directory that cannot be read.
 * Returns the length.
 */
size_t disti_module_directories(char *text, size_t size);

/* The sorted names of all modules in these directories. The caller frees `names`. */
struct disti_module_names {
    char (*names)[DISTI_MODULE_NAME];
    int count;
};
void disti_module_names(struct disti_module_names *names_p);

#endif
