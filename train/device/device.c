/* SPDX-License-Identifier: BSD-3-Clause */
/* The devices by name. */
#include "device.h"

#include <stdlib.h>
#include <string.h>

#include "device_cuda.h"
#include "train/failure.h"

enum { DEVICE_MOST = 1 << 16 }; /* GPUs of one machine: more is a slip of the hand */

int device_parse(const char *name, bool *cuda_p, int *number_p)
{
    char *end = NULL;
    long number = -1;

    if (strncmp(name, "cuda:", 5) == 0 && name[5] >= '0' && name[5] <= '9')
        number = strtol(name + 5, &end, 10);
    if ((end && (*end || number >= DEVICE_MOST)) ||
        (!end && strcmp(name, "cpu") != 0 && strcmp(name, "cuda") != 0))
        return failure("--device %s: there is no such device; there are cpu, cuda, and cuda:N for "
                       "GPU number N",
                       name);
    *cuda_p = strcmp(name, "cpu") != 0;
    *number_p = (int)number;
    return 0;
}

int device_open(const char *name, struct device_setup *setup, struct device **device_p)
{
    const struct device_kind *kind = &device_cpu;
    bool cuda;

    if (device_parse(name, &cuda, &setup->number) < 0)
        return -1;
    if (cuda && device_cuda_find(&kind) < 0)
        return -1;
    return kind->open(setup, device_p);
}

void device_close(struct device *device)
{
    if (device)
        device->kind->close(device);
}
