/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of a GPU for the battery's data: through the driver that is found at run time. */
#ifndef TOOLS_SELFTEST_DEVICE_H
#define TOOLS_SELFTEST_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Loads the driver (DIST_GPU_DRIVER, else CUDA's, else HIP's) and takes DIST_DEVICE, else the
 * device of this local rank, with a stream. False: there is none, and why is written to reason.
 * Once a process, for the thread that uses it.
 */
bool device_open(int local_rank, char *reason, size_t reason_size);
/* The stream that all copies go on; NULL before device_open. */
void *device_stream(void);

/* Device memory; NULL: there is none left. */
void *device_alloc(size_t bytes);
void device_free(void *memory);
/* Is it memory of a device? False before device_open. */
bool device_owns(const void *memory);

/* Copies, after what is on the stream; done when they return. False: the driver says no. */
bool device_put(void *memory, const void *from, size_t bytes);
bool device_get(void *to, const void *memory, size_t bytes);

#endif
