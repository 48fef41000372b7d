/* SPDX-License-Identifier: BSD-3-Clause */
/* The stand-in's devices, contexts and error texts. */
#include "standin.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CONTEXTS_DEEP 64

struct device {
    int physical;
    int retained;
};

static pthread_mutex_t driver_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t driver_change = PTHREAD_COND_INITIALIZER;
static struct device driver_device[STANDIN_DEVICES_MAX];
static int driver_devices;
static atomic_bool driver_ready;

/* This thread's stack of contexts, as device ordinals. */
static _Thread_local int driver_stack[CONTEXTS_DEEP];
static _Thread_local int driver_depth;

void standin_lock(void)
{
    pthread_mutex_lock(&driver_mutex);
}

void standin_unlock(void)
{
    pthread_mutex_unlock(&driver_mutex);
}

void standin_wait(void)
{
    standin_wait_on(&driver_change);
}

void standin_wait_on(pthread_cond_t *change)
{
    pthread_cond_wait(change, &driver_mutex);
}

void standin_changed(void)
{
    standin_streams_wake();
    pthread_cond_broadcast(&driver_change);
}

long standin_number(const char *name, long fallback)
{
    const char *text = getenv(name);

    return text && *text ? strtol(text, NULL, 10) : fallback;
}

void standin_sleep_us(long us)
{
    struct timespec time = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};

    if (us > 0)
        nanosleep(&time, NULL);
}

/* ---- devices ---- */

/* Parses CUDA_VISIBLE_DEVICES: the numbers before the first invalid one. */
static void driver_find_devices(void)
{
    const char *visible = getenv(STANDIN_NAME("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"));
    int there = (int)standin_number("STANDIN_DEVICES", 8);
    char *end;

    there = there > STANDIN_DEVICES_MAX ? STANDIN_DEVICES_MAX : there;
    driver_devices = 0;
    for (int i = 0; !visible && i < there; i++)
        driver_device[driver_devices++].physical = i;
    for (; visible && *visible && driver_devices < STANDIN_DEVICES_MAX; visible = end) {
        long number = strtol(visible, &end, 10);

        if (end == visible || number < 0 || number >= there)
            break;
        driver_device[driver_devices++].physical = (int)number;
        end += *end == ',';
    }
}

DRIVER(cuInit, hipInit, unsigned flags)
{
    standin_lock();
    if (!driver_ready)
        driver_find_devices();
    driver_ready = true;
    standin_unlock();
    if (flags)
        return ERROR_INVALID_VALUE;
    return driver_devices ? ERROR_OK : ERROR_NO_DEVICE;
}

int standin_devices(void)
{
    return driver_ready ? driver_devices : 0;
}

int standin_device_physical(int ordinal)
{
    return driver_device[ordinal].physical;
}

static int driver_check(int ordinal)
{
    if (!driver_ready)
        return ERROR_NOT_INITIALIZED;
    return ordinal >= 0 && ordinal < driver_devices ? ERROR_OK : ERROR_INVALID_DEVICE;
}

DRIVER(cuDriverGetVersion, hipDriverGetVersion, int *version)
{
    *version = STANDIN_NAME(13000, 60200000);
    return ERROR_OK;
}

DRIVER(cuDeviceGetCount, hipGetDeviceCount, int *count)
{
    *count = standin_devices();
    return driver_ready ? ERROR_OK : ERROR_NOT_INITIALIZED;
}

DRIVER(cuDeviceGet, hipDeviceGet, int *device, int ordinal)
{
    int error = driver_check(ordinal);

    if (!error)
        *device = ordinal;
    return error;
}

DRIVER(cuDeviceGetPCIBusId, hipDeviceGetPCIBusId, char *text, int size, int device)
{
    int error = driver_check(device);

    if (!error && snprintf(text, (size_t)size, "0000:%02X:00.0",
                           0x10 + driver_device[device].physical) >= size)
        error = ERROR_INVALID_VALUE;
    return error;
}

DRIVER(cuDeviceGetName, hipDeviceGetName, char *text, int size, int device)
{
    int error = driver_check(device);

    if (!error)
        snprintf(text, (size_t)size, "stand-in %d", driver_device[device].physical);
    return error;
}

/* ---- contexts: the address of a device's entry is its primary context ---- */

void *standin_context(int device)
{
    return &driver_device[device];
}

/* Returns the ordinal of a context, or -1 if it is none. */
static int driver_ordinal(const void *context)
{
    for (int i = 0; i < driver_devices; i++) {
        if (context == &driver_device[i])
            return i;
    }
    return -1;
}

int standin_current(int *device_p)
{
    if (!driver_ready)
        return ERROR_NOT_INITIALIZED;
    if (driver_depth == 0 && STANDIN_IS_HIP)
        *device_p = 0;
    else if (driver_depth == 0 || driver_stack[driver_depth - 1] < 0)
        return ERROR_INVALID_CONTEXT;
    else
        *device_p = driver_stack[driver_depth - 1];
    return ERROR_OK;
}

void standin_device_set(int device)
{
    driver_depth += driver_depth == 0;
    driver_stack[driver_depth - 1] = device;
}

DRIVER(cuDevicePrimaryCtxRetain, hipDevicePrimaryCtxRetain, void **context, int device)
{
    int error = driver_check(device);

    if (error)
        return error;
    standin_lock();
    driver_device[device].retained++;
    *context = &driver_device[device];
    standin_unlock();
    return ERROR_OK;
}

DRIVER(cuDevicePrimaryCtxRelease_v2, hipDevicePrimaryCtxRelease, int device)
{
    int error = driver_check(device);

    standin_lock();
    if (!error && driver_device[device].retained == 0)
        error = ERROR_INVALID_CONTEXT;
    if (!error)
        driver_device[device].retained--;
    standin_unlock();
    return error;
}

/* HIP's primary contexts are always active. */
static bool driver_is_active(int ordinal)
{
    bool is;

    standin_lock();
    is = ordinal >= 0 && (STANDIN_IS_HIP || driver_device[ordinal].retained > 0);
    standin_unlock();
    return is;
}

DRIVER(cuCtxPushCurrent_v2, hipCtxPushCurrent, void *context)
{
    int ordinal = driver_ordinal(context);

    if (!driver_is_active(ordinal) || driver_depth == CONTEXTS_DEEP)
        return ERROR_INVALID_CONTEXT;
    driver_stack[driver_depth++] = ordinal;
    return ERROR_OK;
}

DRIVER(cuCtxPopCurrent_v2, hipCtxPopCurrent, void **context)
{
    int device;

    if (driver_depth == 0 || standin_current(&device))
        return ERROR_INVALID_CONTEXT;
    driver_depth--;
    if (context)
        *context = &driver_device[device];
    return ERROR_OK;
}

DRIVER(cuCtxGetCurrent, hipCtxGetCurrent, void **context)
{
    int device;

    *context = standin_current(&device) ? NULL : &driver_device[device];
    return driver_ready ? ERROR_OK : ERROR_NOT_INITIALIZED;
}

DRIVER(cuCtxSetCurrent, hipCtxSetCurrent, void *context)
{
    int ordinal = driver_ordinal(context);

    if (context && !driver_is_active(ordinal))
        return ERROR_INVALID_CONTEXT;
    standin_device_set(context ? ordinal : -1);
    return ERROR_OK;
}

DRIVER(cuCtxGetDevice, hipCtxGetDevice, int *device)
{
    return standin_current(device);
}

DRIVER(cuCtxSynchronize, hipCtxSynchronize, void)
{
    int device, error = standin_current(&device);

    return error ? error : standin_device_sync(device);
}

/* ---- errors ---- */

const char *standin_error_text(int error)
{
    static const struct {
        int number;
        const char *text;
    } errors[] = {
#define DRIVER_ERROR(name, number, text) {number, text},
        STANDIN_ERRORS(DRIVER_ERROR)
#undef DRIVER_ERROR
    };

    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (errors[i].number == error)
            return errors[i].text;
    }
    return NULL;
}

DRIVER(cuGetErrorString, hipDrvGetErrorString, int error, const char **text)
{
    *text = standin_error_text(error);
    return *text ? ERROR_OK : ERROR_INVALID_VALUE;
}
