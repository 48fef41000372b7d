/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unloaded LIBRARY: a program that opens libdist.so, makes a world, and closes the library again.
 * Exit 0: its code stays mapped, since threads of the library may still write a dump.
 */
#include <dlfcn.h>
#include <stdio.h>

typedef int (*world_fn)(const void *options, void **group_p);
typedef int (*destroy_fn)(void *group);

static int fail(const char *what)
{
    const char *why = dlerror();

    fprintf(stderr, "%s: %s\n", what, why ? why : "failed");
    return 1;
}

int main(int argc, char **argv)
{
    void *library, *group = NULL;
    world_fn world;
    destroy_fn destroy;

    if (argc != 2)
        return 2;
    library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return fail("dlopen");
    *(void **)&world = dlsym(library, "dist_init_process_group");
    *(void **)&destroy = dlsym(library, "dist_destroy_process_group");
    if (!world || !destroy)
        return fail("dlsym");
    if (world(NULL, &group) != 0 || destroy(group) != 0)
        return fail("a world of one");
    if (dlclose(library) != 0)
        return fail("dlclose");
    return dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) ? 0 : fail("libdist.so is not loaded any more");
}
