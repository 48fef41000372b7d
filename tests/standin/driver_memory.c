/* SPDX-License-Identifier: BSD-3-Clause */
/* The stand-in's memory: device memory, pinned memory, and the owner of an address. */
#include "standin.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    ATTRIBUTE_CONTEXT = 1,
    ATTRIBUTE_MEMORY_TYPE = 2,
    ATTRIBUTE_DEVICE_POINTER = 3,
    ATTRIBUTE_HOST_POINTER = 4,
    ATTRIBUTE_BUFFER_ID = 7,
    ATTRIBUTE_IS_MANAGED = 8,
    ATTRIBUTE_DEVICE_ORDINAL = 9
};
enum { TYPE_HOST = 1, TYPE_DEVICE = 2 };

#define MEMORY_PAGE ((size_t)4096)

static struct standin_memory *memory_list;
static uint64_t memory_count;

/* ---- the two mappings ---- */

static void *memory_map(int fd, size_t bytes, int protection)
{
    void *at = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);

    return at == MAP_FAILED ? NULL : at;
}

static void memory_unmap(struct standin_memory *memory)
{
    if (memory->alias && memory->alias != memory->address)
        munmap(memory->alias, memory->mapped);
    if (memory->address)
        munmap(memory->address, memory->mapped);
    free(memory);
}

/*
 * Maps the memory twice: for the program, which has no access to device memory, and for the
 * stand-in.
 */
static bool memory_back(struct standin_memory *memory)
{
    bool guard = memory->kind == MEMORY_OF_DEVICE && standin_number("STANDIN_GUARD", 1);
    int fd = memfd_create("standin", MFD_CLOEXEC);

    if (fd < 0)
        return false;
    if (ftruncate(fd, (off_t)memory->mapped) == 0) {
        memory->address =
            memory_map(fd, memory->mapped, guard ? PROT_NONE : PROT_READ | PROT_WRITE);
        memory->alias =
            guard ? memory_map(fd, memory->mapped, PROT_READ | PROT_WRITE) : memory->address;
    }
    close(fd);
    return memory->address && memory->alias;
}

/* Fills new device memory, whose contents are undefined; zeros would hide errors. */
static void memory_fill(struct standin_memory *memory)
{
    if (memory->kind == MEMORY_OF_DEVICE && memory->bytes < (size_t)1 << 24)
        memset(memory->alias, 0xdb, memory->bytes);
}

/*
 * True if a planted fault refuses this allocation. The fault refuses all after the first N on the
 * device.
 */
static bool memory_refused(enum standin_memory_kind kind, int device)
{
    static atomic_long given;
    long limit;

    return kind == MEMORY_OF_DEVICE && standin_fault(FAULT_MEMORY, device, &limit) &&
           atomic_fetch_add(&given, 1) >= limit;
}

int standin_memory_new(enum standin_memory_kind kind, int device, size_t bytes, void **address_p)
{
    struct standin_memory *memory;

    if (bytes == 0)
        return ERROR_INVALID_VALUE;
    if (bytes > SIZE_MAX / 2 || memory_refused(kind, device))
        return ERROR_OUT_OF_MEMORY;
    memory = calloc(1, sizeof(*memory));
    if (!memory)
        return ERROR_OUT_OF_MEMORY;
    memory->kind = kind;
    memory->device = device;
    memory->bytes = bytes;
    memory->mapped = (bytes + MEMORY_PAGE - 1) / MEMORY_PAGE * MEMORY_PAGE;
    if (!memory_back(memory)) {
        memory_unmap(memory);
        return ERROR_OUT_OF_MEMORY;
    }
    memory_fill(memory);
    standin_lock();
    memory->id = ++memory_count;
    memory->next = memory_list;
    memory_list = memory;
    standin_unlock();
    *address_p = memory->address;
    return ERROR_OK;
}

/*
 * As with CUDA, waits until the device has finished all its operations before the memory is freed.
 */
int standin_memory_drop(const void *address, bool of_device)
{
    struct standin_memory memory, **at, *found = NULL;

    if (!address)
        return ERROR_OK;
    if (!standin_memory_find(address, &memory) || memory.address != address ||
        (memory.kind == MEMORY_PINNED) == of_device)
        return ERROR_INVALID_VALUE;
    standin_device_sync(memory.device);
    standin_lock();
    for (at = &memory_list; *at && (*at)->address != address; at = &(*at)->next)
        ;
    found = *at;
    if (found)
        *at = found->next;
    standin_unlock();
    if (found)
        memory_unmap(found);
    return found ? ERROR_OK : ERROR_INVALID_VALUE;
}

void standin_memory_unbind(const void *address)
{
    standin_lock();
    for (struct standin_memory *memory = memory_list; memory; memory = memory->next)
        memory->mapped_only = memory->mapped_only || memory->address == address;
    standin_unlock();
}

bool standin_memory_find(const void *address, struct standin_memory *memory_p)
{
    const unsigned char *byte = address;
    struct standin_memory *memory;

    standin_lock();
    for (memory = memory_list; memory; memory = memory->next) {
        if (byte >= memory->address && byte < memory->address + memory->bytes)
            break;
    }
    if (memory)
        *memory_p = *memory;
    standin_unlock();
    return memory != NULL;
}

unsigned char *standin_alias(const void *address, size_t bytes)
{
    struct standin_memory memory;
    size_t offset;

    if (!standin_memory_find(address, &memory))
        return NULL;
    offset = (size_t)((const unsigned char *)address - memory.address);
    return bytes <= memory.bytes - offset ? memory.alias + offset : NULL;
}

/* ---- functions ---- */

static int memory_allocate(enum standin_memory_kind kind, size_t bytes, void **address_p)
{
    int device, error = standin_current(&device);

    standin_lock();
    error = error ? error : standin_capture_unsafe();
    standin_unlock();
    return error ? error : standin_memory_new(kind, device, bytes, address_p);
}

static int memory_release(const void *address, bool of_device)
{
    int device, error = standin_current(&device);

    standin_lock();
    error = error ? error : standin_capture_unsafe();
    standin_unlock();
    return error ? error : standin_memory_drop(address, of_device);
}

DRIVER(cuMemAlloc_v2, hipMalloc, uintptr_t *memory, size_t bytes)
{
    return memory_allocate(MEMORY_OF_DEVICE, bytes, (void **)memory);
}

DRIVER(cuMemAllocManaged, hipMallocManaged, uintptr_t *memory, size_t bytes, unsigned flags)
{
    (void)flags;
    return memory_allocate(MEMORY_MANAGED, bytes, (void **)memory);
}

DRIVER(cuMemFree_v2, hipFree, uintptr_t memory)
{
    return memory_release((void *)memory, true);
}

DRIVER(cuMemHostAlloc, hipHostMalloc, void **memory, size_t bytes, unsigned flags)
{
    (void)flags;
    return memory_allocate(MEMORY_PINNED, bytes, memory);
}

DRIVER(cuMemFreeHost, hipHostFree, void *memory)
{
    return memory_release(memory, false);
}

static int memory_attribute(const struct standin_memory *memory, int attribute, void *data,
                            uintptr_t pointer)
{
    switch (attribute) {
    case ATTRIBUTE_CONTEXT:
        *(void **)data = memory->mapped_only ? NULL : standin_context(memory->device);
        break;
    case ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = memory->kind == MEMORY_PINNED ? TYPE_HOST : TYPE_DEVICE;
        break;
    case ATTRIBUTE_DEVICE_POINTER:
        *(uintptr_t *)data = pointer;
        break;
    case ATTRIBUTE_HOST_POINTER:
        *(uintptr_t *)data = memory->kind == MEMORY_OF_DEVICE ? 0 : pointer;
        break;
    case ATTRIBUTE_BUFFER_ID:
        *(uint64_t *)data = memory->id;
        break;
    case ATTRIBUTE_IS_MANAGED:
        *(unsigned *)data = memory->kind == MEMORY_MANAGED;
        break;
    case ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = memory->device;
        break;
    default:
        return ERROR_INVALID_VALUE;
    }
    return ERROR_OK;
}

/* Stores the attribute of memory that CUDA does not know: zero in the attribute's size, or -2 for
 * the device. */
static int memory_no_attribute(int attribute, void *data)
{
    switch (attribute) {
    case ATTRIBUTE_CONTEXT:
    case ATTRIBUTE_DEVICE_POINTER:
    case ATTRIBUTE_HOST_POINTER:
    case ATTRIBUTE_BUFFER_ID:
        *(uint64_t *)data = 0;
        return ERROR_OK;
    case ATTRIBUTE_MEMORY_TYPE:
    case ATTRIBUTE_IS_MANAGED:
        *(unsigned *)data = 0;
        return ERROR_OK;
    case ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = -2;
        return ERROR_OK;
    default:
        return ERROR_INVALID_VALUE;
    }
}

DRIVER(cuPointerGetAttributes, hipDrvPointerGetAttributes, unsigned count, int *attributes,
       void **data, uintptr_t pointer)
{
    struct standin_memory memory;
    int error = ERROR_OK;

    if (standin_devices() == 0)
        return ERROR_NOT_INITIALIZED;
    for (unsigned i = 0; i < count && error == ERROR_OK; i++)
        error = standin_memory_find((void *)pointer, &memory)
                    ? memory_attribute(&memory, attributes[i], data[i], pointer)
                    : memory_no_attribute(attributes[i], data[i]);
    return error;
}
