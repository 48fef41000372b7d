/* SPDX-License-Identifier: BSD-3-Clause */
/* The folders where modules are looked for, and the modules in them. */
#include "backends/module.h"
#include "backends/registry.h"
#include "base/ascii.h"
#include "base/settings/config.h"
#include "base/settings/variables.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef DISTI_MODULE_DIR
#define DISTI_MODULE_DIR "/usr/local/lib/dist"
#endif

/* The folder that this library was loaded from: an installation that was moved still works. */
static bool folders_own(char *folder, size_t size)
{
    Dl_info info;
    const char *slash;

    if (!dladdr((void *)(uintptr_t)&disti_host, &info) || !info.dli_fname)
        return false;
    slash = strrchr(info.dli_fname, '/');
    if (!slash || (size_t)(slash - info.dli_fname) >= size)
        return false;
    snprintf(folder, size, "%.*s", (int)(slash - info.dli_fname), info.dli_fname);
    return true;
}

/*
 * Folder number i of those where modules are looked for: DIST_PLUGIN_PATH (folders, split by ':'),
 * then dist/ beside the library, then the library's own folder (a build tree that was not
 * installed), then the place it was configured for. False: there are no more.
 */
static bool folders_item(int i, char *folder, size_t size)
{
    const char *list = disti_env("DIST_PLUGIN_PATH");
    char own[PATH_MAX - sizeof("/dist")];
    int listed = 0;

    while (list && disti_list_item(list, ':', listed, folder, size)) {
        if (listed++ == i)
            return true;
    }
    i -= listed;
    if (!folders_own(own, sizeof(own)))
        i += 2;
    if (i > 2)
        return false;
    snprintf(folder, size, "%s%s", i == 2 ? DISTI_MODULE_DIR : own, i == 0 ? "/dist" : "");
    return true;
}

/* Whatever stands there counts, so that a wrong file is told of, and no other taken for it. */
int disti_module_locate(const char *name, char paths[][PATH_MAX], int room)
{
    char folder[PATH_MAX];
    struct stat status;
    int found = 0;

    for (int i = 0; found < room && folders_item(i, folder, sizeof(folder)); i++) {
        int n = snprintf(paths[found], PATH_MAX, "%s/dist_%s.so", folder, name);

        if (n > 0 && n < PATH_MAX && lstat(paths[found], &status) == 0)
            found++;
    }
    return found;
}

size_t dist_list_module_folders(char *buffer, size_t size)
{
    char folder[PATH_MAX];
    size_t used = 0;

    size = buffer ? size : 0;
    if (size)
        buffer[0] = '\0';
    for (int i = 0; folders_item(i, folder, sizeof(folder)); i++)
        used += (size_t)snprintf(used < size ? buffer + used : NULL, used < size ? size - used : 0,
                                 "%s\n", folder);
    return used;
}

size_t disti_module_folders(char *text, size_t size)
{
    char folder[PATH_MAX];
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; used < size && folders_item(i, folder, sizeof(folder)); i++) {
        int error = access(folder, R_OK | X_OK) == 0 ? 0 : errno;

        used += (size_t)snprintf(text + used, size - used, "%s%s%s%s%s", i ? ", " : "", folder,
                                 error ? " (" : "", error ? strerror(error) : "", error ? ")" : "");
    }
    return used;
}

/* ---- what there is ---- */

/* "dist_NAME.so" without what is around the name. False: it is no such file. */
static bool folders_name(const char *file, char name[DISTI_MODULE_NAME])
{
    size_t length = strlen(file);

    if (length <= strlen("dist_.so") || length - strlen("dist_.so") >= DISTI_MODULE_NAME ||
        strncmp(file, "dist_", strlen("dist_")) != 0 || strcmp(file + length - 3, ".so") != 0)
        return false;
    snprintf(name, DISTI_MODULE_NAME, "%.*s", (int)(length - strlen("dist_.so")),
             file + strlen("dist_"));
    return true;
}

/* Once each, in the order of the alphabet. */
static bool folders_add(struct disti_module_names *names, const char *name)
{
    void *grown;
    int index = 0;

    while (index < names->count && strcmp(names->names[index], name) < 0)
        index++;
    if (index < names->count && strcmp(names->names[index], name) == 0)
        return true;
    grown = realloc(names->names, (size_t)(names->count + 1) * sizeof(*names->names));
    if (!grown)
        return false;
    names->names = grown;
    memmove(names->names + index + 1, names->names + index,
            (size_t)(names->count - index) * sizeof(*names->names));
    snprintf(names->names[index], sizeof(names->names[index]), "%s", name);
    names->count++;
    return true;
}

void disti_module_names(struct disti_module_names *names_p)
{
    char folder[PATH_MAX], name[DISTI_MODULE_NAME];
    const struct dirent *entry;

    *names_p = (struct disti_module_names){0};
    for (int i = 0; folders_item(i, folder, sizeof(folder)); i++) {
        DIR *dir = opendir(folder);

        while (dir && (entry = readdir(dir))) {
            if (folders_name(entry->d_name, name) && !folders_add(names_p, name))
                break;
        }
        if (dir)
            closedir(dir);
    }
}

/* "hccl" of DIST_HCCL and DIST_HCCL_LIBRARY; signs that no variable can have stand for _. */
static bool folders_names(const char *variable, const char *module)
{
    size_t index = strlen("DIST_");

    for (; *module; module++, index++) {
        const char sign = disti_ascii_alnum(*module) ? disti_ascii_upper(*module) : '_';

        if (variable[index] != sign)
            return false;
    }
    return variable[index] == '\0' || variable[index] == '_';
}

/* This project's modules: their variables are known one by one. */
static bool folders_is_own(const char *module)
{
    for (int i = 0; disti_own_module(i); i++) {
        if (strcmp(disti_own_module(i), module) == 0)
            return true;
    }
    return false;
}

bool disti_module_has_variable(const char *variable)
{
    struct disti_module_names names;
    bool found = false;

    disti_module_names(&names);
    for (int i = 0; i < names.count && !found; i++)
        found = !folders_is_own(names.names[i]) && folders_names(variable, names.names[i]);
    free(names.names);
    return found;
}

/* ---- what is like it ---- */

static bool folders_similar(const char *name, const char *other)
{
    size_t length = strlen(name);

    return length && length < DISTI_MODULE_NAME &&
           (strstr(other, name) || strstr(name, other) ||
            disti_name_distance(name, other) <= 1 + (int)length / 4);
}

void disti_module_similar(const char *name, char *text, size_t size)
{
    struct disti_module_names names;
    size_t used = 0;

    text[0] = '\0';
    disti_module_names(&names);
    for (int i = 0; i < names.count && used < size; i++) {
        if (folders_similar(name, names.names[i]))
            used += (size_t)snprintf(text + used, size - used, "%sdist_%s.so",
                                     used ? ", " : "; there is ", names.names[i]);
    }
    free(names.names);
}
