/* SPDX-License-Identifier: BSD-3-Clause */
/* Between train_mnist and its module for GPUs, train_mnist_cuda.so. */
#ifndef TRAIN_DEVICE_CUDA_H
#define TRAIN_DEVICE_CUDA_H

#include "device.h"
#include "train/grid.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the module calls: it links neither the program nor the library. */
struct device_services {
    int (*failure)(const char *format, ...);
    dist_status (*alloc)(dist_group *group, size_t bytes, void **memory_p);
    dist_status (*release)(dist_group *group, void *memory);
    void (*grid_start)(const struct model *model, struct grid *grid);
};

/*
 * The module's one symbol. version: DIST_VERSION_STRING of the program; NULL if the module is of
 * another one.
 */
typedef const struct device_kind *(*device_cuda_fn)(const char *version,
                                                    const struct device_services *services);
#define DEVICE_CUDA_SYMBOL "train_mnist_cuda"
DIST_API const struct device_kind *train_mnist_cuda(const char *version,
                                                    const struct device_services *services);

/* The kernels, from the module. -1: it is not there, or cannot be loaded. */
int device_cuda_find(const struct device_kind **kind_p);

#ifdef __cplusplus
}
#endif
#endif
