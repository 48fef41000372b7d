/* SPDX-License-Identifier: BSD-3-Clause */
/* The module with the kernels for GPUs: found at run time, so that the program needs no CUDA. */
#include "device_cuda.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <dist/backend.h>

#include "train/failure.h"

static const struct device_services device_cuda_services = {
    .failure = failure,
    .alloc = dist_alloc,
    .release = dist_free,
    .grid_start = grid_start,
};

/* Looks in the folders where the library looks for its modules. folders: for the message. */
static bool device_cuda_locate(char *path, size_t size, char *folders, size_t folders_size)
{
    dist_list_module_folders(folders, folders_size);
    for (char *at = folders; *at;) {
        const int length = (int)strcspn(at, "\n");

        snprintf(path, size, "%.*s/train_mnist_cuda.so", length, at);
        if (access(path, F_OK) == 0)
            return true;
        at += length;
        if (*at)
            *at++ = ' ';
    }
    return false;
}

int device_cuda_find(const struct device_kind **kind_p)
{
    char path[PATH_MAX + 64], folders[2 * PATH_MAX];
    const struct device_kind *kind;
    device_cuda_fn find;
    void *handle;

    if (!device_cuda_locate(path, sizeof(path), folders, sizeof(folders)))
        return failure("--device cuda: there is no train_mnist_cuda.so in %s: build libdist where "
                       "configure finds CUDA's nvcc and cuBLAS, or use --device cpu",
                       folders);
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle)
        return failure("--device cuda: cannot load the kernels: %s: install CUDA's libraries, or "
                       "name their folder in LD_LIBRARY_PATH, or use --device cpu",
                       dlerror());
    find = (device_cuda_fn)(uintptr_t)dlsym(handle, DEVICE_CUDA_SYMBOL);
    kind = find ? find(DIST_VERSION_STRING, &device_cuda_services) : NULL;
    if (!kind) {
        dlclose(handle);
        return failure("--device cuda: %s is not of this version, %s: install both together", path,
                       DIST_VERSION_STRING);
    }
    *kind_p = kind;
    return 0;
}
