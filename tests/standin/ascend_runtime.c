/* SPDX-License-Identifier: BSD-3-Clause */
/* Stand-in for Ascend: devices and memory of the runtime. */
#include "standin/ascend.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DEVICES_MAX = 64 };

static pthread_mutex_t runtime_lock = PTHREAD_MUTEX_INITIALIZER;

static _Thread_local char runtime_text[256];
static _Thread_local int *runtime_context; /* points into runtime_devices[] */
static int runtime_devices[DEVICES_MAX];
static bool runtime_initialised;

void ascend_set_message(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(runtime_text, sizeof(runtime_text), format, args);
    va_end(args);
}

ASCEND_API const char *aclGetRecentErrMsg(void);
const char *aclGetRecentErrMsg(void)
{
    return runtime_text;
}

int ascend_error(int error, const char *text)
{
    ascend_set_message("EE0001: %s", text);
    return error;
}

/* ---- devices and contexts ---- */

static uint32_t runtime_device_count(void)
{
    const char *text = getenv("STANDIN_ASCEND_DEVICES");
    long count = text ? strtol(text, NULL, 10) : 8;

    return count < 0 || count > DEVICES_MAX ? 0 : (uint32_t)count;
}

CALL(aclInit, const char *config)
{
    int error = runtime_initialised ? ASCEND_REPEATED : 0;

    (void)config;
    runtime_initialised = true;
    return error;
}

CALL(aclrtGetDeviceCount, uint32_t *count)
{
    *count = runtime_device_count();
    return 0;
}

CALL(aclrtSetDevice, int32_t device)
{
    if (device < 0 || (uint32_t)device >= runtime_device_count())
        return ascend_error(ASCEND_INVALID, "there is no such device");
    runtime_context = &runtime_devices[device];
    return 0;
}

CALL(aclrtGetCurrentContext, void **context)
{
    *context = runtime_context;
    return runtime_context ? 0 : ASCEND_NO_CONTEXT;
}

CALL(aclrtSetCurrentContext, void *context)
{
    if (!context)
        return ascend_error(ASCEND_INVALID, "no context");
    runtime_context = context;
    return 0;
}

int ascend_need_context(void)
{
    return runtime_context ? 0 : ascend_error(ASCEND_NO_CONTEXT, "the thread has no context");
}

/* ---- memory: `address` cannot be accessed, `alias` is a mapping that can ---- */

struct memory {
    struct memory *next;
    char *address, *alias;
    size_t bytes;
};

static struct memory *runtime_memory;

static struct memory *runtime_find(const void *address)
{
    struct memory *m = runtime_memory;

    while (m &&
           ((const char *)address < m->address || (const char *)address >= m->address + m->bytes))
        m = m->next;
    return m;
}

char *ascend_alias(const void *address, size_t bytes)
{
    char *alias = NULL;
    struct memory *m;
    size_t offset;

    pthread_mutex_lock(&runtime_lock);
    m = runtime_find(address);
    if (m) {
        offset = (size_t)((const char *)address - m->address);
        alias = bytes <= m->bytes - offset ? m->alias + offset : NULL;
    }
    pthread_mutex_unlock(&runtime_lock);
    return alias;
}

CALL(aclrtMalloc, void **memory, size_t bytes, int policy)
{
    int fd = memfd_create("ascend", MFD_CLOEXEC);
    struct memory *m = calloc(1, sizeof(*m));

    (void)policy;
    if (ascend_need_context())
        return ASCEND_NO_CONTEXT;
    m->bytes = bytes;
    if (fd < 0 || bytes == 0 || ftruncate(fd, (off_t)bytes))
        return ascend_error(ASCEND_INVALID, "no such memory");
    m->address = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, fd, 0);
    m->alias = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    memset(m->alias, 0xa5, bytes);
    pthread_mutex_lock(&runtime_lock);
    m->next = runtime_memory;
    runtime_memory = m;
    pthread_mutex_unlock(&runtime_lock);
    *memory = m->address;
    return 0;
}

CALL(aclrtFree, void *memory)
{
    struct memory **link = &runtime_memory, *m;

    pthread_mutex_lock(&runtime_lock);
    while (*link && (*link)->address != memory)
        link = &(*link)->next;
    m = *link;
    if (m)
        *link = m->next;
    pthread_mutex_unlock(&runtime_lock);
    if (!m)
        return ascend_error(ASCEND_INVALID, "not of aclrtMalloc");
    munmap(m->address, m->bytes);
    munmap(m->alias, m->bytes);
    free(m);
    return 0;
}

struct pointer {
    uint32_t device;
    int type;
    uint32_t page, reserved[4];
};

CALL(aclrtPointerGetAttributes, const void *at, struct pointer *what_p)
{
    bool device = ascend_alias(at, 1) != NULL;

    if (ascend_need_context())
        return ASCEND_NO_CONTEXT;
    *what_p = (struct pointer){.type = device ? 1 : 2};
    return 0;
}

/*
 * Returns an address at which the stand-in can access one end of a copy. Returns NULL if the memory
 * is of the wrong kind: `device` requires device memory, otherwise it must be host memory.
 */
static char *runtime_end(const void *address, size_t bytes, bool device)
{
    char *alias = ascend_alias(address, device ? bytes : 1);

    return device ? alias : alias ? NULL : (char *)(uintptr_t)address;
}

int ascend_copy(void *to, const void *from, size_t bytes, int kind)
{
    char *target = runtime_end(to, bytes, kind != ASCEND_TO_HOST);
    const char *source = runtime_end(from, bytes, kind != ASCEND_TO_DEVICE);

    if (!target || !source)
        return ascend_error(ASCEND_INVALID,
                            "the memory of a copy is not of the kind that the caller stated");
    memmove(target, source, bytes);
    return 0;
}

CALL(aclrtMemcpy, void *to, size_t room, const void *from, size_t bytes, int kind)
{
    if (ascend_need_context() || bytes > room)
        return ASCEND_INVALID;
    return ascend_copy(to, from, bytes, kind);
}

CALL(aclrtMemset, void *memory, size_t room, int32_t value, size_t bytes)
{
    char *alias = ascend_alias(memory, bytes);

    if (ascend_need_context() || bytes > room || !alias)
        return ASCEND_INVALID;
    memset(alias, value, bytes);
    return 0;
}
