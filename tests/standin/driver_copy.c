/* SPDX-License-Identifier: BSD-3-Clause */
/* The stand-in's copies, fills, and host functions on streams. */
#include "standin.h"

#include <stdlib.h>
#include <string.h>

struct copy {
    struct standin_task task; /* must be the first member */
    unsigned char *to;
    const unsigned char *from; /* NULL for a fill */
    size_t bytes;
    unsigned char value;
    unsigned char
        staged[]; /* a copy of the data, if the caller may overwrite them after the call */
};

struct host_function {
    struct standin_task task; /* must be the first member */
    void (*run)(void *arg);
    void *arg;
};

static void copy_run(struct standin_task *task, uint64_t turn)
{
    const struct copy *copy = (const struct copy *)task;

    (void)turn;
    if (copy->from)
        memmove(copy->to, copy->from, copy->bytes);
    else
        memset(copy->to, copy->value, copy->bytes);
}

static void copy_free(struct standin_task *task)
{
    free(task);
}

static int copy_enqueue(struct copy plan, size_t staged, void *stream)
{
    struct copy *copy = malloc(sizeof(*copy) + staged);

    if (!copy)
        return ERROR_OUT_OF_MEMORY;
    *copy = plan;
    copy->task = (struct standin_task){.run = copy_run, .free = copy_free, .users = 1};
    if (staged) {
        memcpy(copy->staged, plan.from, staged);
        copy->from = copy->staged;
    }
    return standin_enqueue(stream, -1, &copy->task);
}

static int copy_wait(void *handle)
{
    struct standin_stream *stream;
    int error;

    standin_lock();
    error = standin_stream_find(handle, -1, &stream);
    standin_unlock();
    return error ? error : standin_stream_sync(stream);
}

/* Enqueues a copy. An address range that is only partly device memory is treated as host memory,
 * and crashes here; a real program would crash later. */
static int copy_start(uintptr_t to, uintptr_t from, size_t bytes, void *stream, int *pageable)
{
    struct copy plan = {.to = standin_alias((void *)to, bytes),
                        .from = standin_alias((void *)from, bytes),
                        .bytes = bytes};
    size_t staged = plan.from ? 0 : bytes;

    *pageable = !plan.to;
    plan.to = plan.to ? plan.to : (unsigned char *)to;
    plan.from = plan.from ? plan.from : (const unsigned char *)from;
    return copy_enqueue(plan, staged, stream);
}

/* Returns whether this memory is accessible to a device. */
static bool copy_reaches(uintptr_t address, size_t bytes)
{
    return standin_alias((void *)address, bytes) != NULL;
}

static int copy_any(uintptr_t to, uintptr_t from, size_t bytes, void *stream)
{
    int pageable, error = ERROR_OK;

    if (bytes)
        error = copy_start(to, from, bytes, stream, &pageable);
    return error || !bytes || !pageable ? error : copy_wait(stream);
}

#ifndef STANDIN_HIP
DRIVER(cuMemcpyAsync, , uintptr_t to, uintptr_t from, size_t bytes, void *stream)
{
    return copy_any(to, from, bytes, stream);
}
#endif

DRIVER(cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync, uintptr_t to, const void *from, size_t bytes,
       void *stream)
{
    if (bytes && !copy_reaches(to, bytes))
        return ERROR_INVALID_VALUE;
    return copy_any(to, (uintptr_t)from, bytes, stream);
}

DRIVER(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync, void *to, uintptr_t from, size_t bytes,
       void *stream)
{
    if (bytes && !copy_reaches(from, bytes))
        return ERROR_INVALID_VALUE;
    return copy_any((uintptr_t)to, from, bytes, stream);
}

DRIVER(cuMemcpyDtoDAsync_v2, hipMemcpyDtoDAsync, uintptr_t to, uintptr_t from, size_t bytes,
       void *stream)
{
    if (bytes && !(copy_reaches(to, bytes) && copy_reaches(from, bytes)))
        return ERROR_INVALID_VALUE;
    return copy_any(to, from, bytes, stream);
}

/* Synchronous forms: on the default stream, and complete when they return. */
DRIVER(cuMemcpyHtoD_v2, hipMemcpyHtoD, uintptr_t to, const void *from, size_t bytes)
{
    int error = STANDIN_NAME(cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync)(to, from, bytes, NULL);

    return error ? error : copy_wait(NULL);
}

DRIVER(cuMemcpyDtoH_v2, hipMemcpyDtoH, void *to, uintptr_t from, size_t bytes)
{
    int error = STANDIN_NAME(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync)(to, from, bytes, NULL);

    return error ? error : copy_wait(NULL);
}

DRIVER(cuMemsetD8Async, hipMemsetD8Async, uintptr_t to, unsigned char value, size_t bytes,
       void *stream)
{
    struct copy plan = {.to = standin_alias((void *)to, bytes), .value = value, .bytes = bytes};

    if (bytes == 0)
        return ERROR_OK;
    return plan.to ? copy_enqueue(plan, 0, stream) : ERROR_INVALID_VALUE;
}

static void host_function_run(struct standin_task *task, uint64_t turn)
{
    const struct host_function *function = (const struct host_function *)task;

    (void)turn;
    function->run(function->arg);
}

DRIVER(cuLaunchHostFunc, hipLaunchHostFunc, void *stream, void (*run)(void *arg), void *arg)
{
    struct host_function *function = malloc(sizeof(*function));

    if (!function)
        return ERROR_OUT_OF_MEMORY;
    *function = (struct host_function){
        .task = {.run = host_function_run, .free = copy_free, .users = 1}, .run = run, .arg = arg};
    return standin_enqueue(stream, -1, &function->task);
}
