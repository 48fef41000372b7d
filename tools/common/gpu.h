/* SPDX-License-Identifier: BSD-3-Clause */
/* GPU memory through the CUDA or HIP driver, which is loaded at run time. Used by dist_bench and
 * the test battery to fill and check buffers. */
#ifndef TOOLS_GPU_H
#define TOOLS_GPU_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Loads the driver (DIST_GPU_DRIVER overrides the file), makes the device of the local rank
 * (DIST_DEVICE overrides it) current in this thread, and creates a stream. Does nothing if already
 * open. Returns NULL, or an error message in static memory.
 */
const char *gpu_open(int local_rank);

/* Returns the stream of all copies; NULL before gpu_open. */
void *gpu_stream(void);

/* Returns device memory, to be released with gpu_free, or NULL if the driver cannot allocate it. */
void *gpu_alloc(size_t bytes);
void gpu_free(void *memory);

/* True if `memory` is device memory. False before gpu_open. */
bool gpu_owns(const void *memory);

/* Copy to or from device memory in stream order, and wait for the stream. gpu_synchronize only
 * waits. Return false if the driver reports an error. */
bool gpu_put(void *to, const void *from, size_t bytes);
bool gpu_get(void *to, const void *from, size_t bytes);
bool gpu_synchronize(void);

#endif
