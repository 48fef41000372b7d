/* SPDX-License-Identifier: BSD-3-Clause */
/* Moving bytes between a device and the host, through memory that the driver has pinned. */
#ifndef DISTI_DEVICE_MEMORY_H
#define DISTI_DEVICE_MEMORY_H

#include "device/driver.h"

/*
 * Pinned host memory, beside a piece of device memory that it is for; from a pool of the process,
 * which keeps up to 64 MiB of what is given back. NULL: the driver has none left.
 */
void *disti_pinned_take(const struct disti_driver *driver, const void *device, size_t bytes);
/* device: as above; it may be gone. NULL is accepted. bytes: as they were taken. */
void disti_pinned_give(const struct disti_driver *driver, const void *device, void *memory,
                       size_t bytes);

/*
 * Copies device memory to the host, after what is on the stream; blocks until that is done. 0, or
 * the driver's error number.
 */
int disti_device_fetch(const struct disti_driver *driver, void *to, const void *device,
                       size_t bytes, void *stream);

/*
 * Copies host memory to the device at once, beside the program's streams; blocks until that is
 * done. 0, or the driver's error number.
 */
int disti_device_store(const struct disti_driver *driver, void *device, const void *from,
                       size_t bytes);

#endif
