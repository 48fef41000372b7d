/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of a GPU, by the driver that is found at run time: CUDA's or HIP's. For programs that
 * look into it: dist_bench, and the battery. */
#ifndef TOOLS_GPU_H
#define TOOLS_GPU_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Once a process: finds the driver (DIST_GPU_DRIVER: a file), makes the device of that local rank
 * (DIST_DEVICE: another) this thread's, and a stream. NULL: it is ready; else what is wrong.
 */
const char *gpu_open(int local_rank);

/* The stream that all copies go on; NULL before gpu_open. */
void *gpu_stream(void);

/* NULL: there is not so much. */
void *gpu_alloc(size_t bytes);
void gpu_free(void *memory);

/* Is it memory of a device? False before gpu_open. */
bool gpu_owns(const void *memory);

/* Copies behind what is on the stream, and waits for that; gpu_synchronize only waits. */
bool gpu_put(void *to, const void *from, size_t bytes);
bool gpu_get(void *to, const void *from, size_t bytes);
bool gpu_synchronize(void);

#endif
