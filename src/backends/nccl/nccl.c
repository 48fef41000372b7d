/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend nccl: collectives of NCCL or RCCL on GPU memory. A module. This file loads the library,
 * opens and closes the group, and allocates memory; post.c executes calls. */
#include "backends/nccl/nccl.h"
#include "base/backoff.h"
#include "base/clock.h"
#include "base/collective.h"
#include "base/settings/env.h"
#include "base/thread.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t library_lock = PTHREAD_MUTEX_INITIALIZER;
static struct disti_nccl_api library_api;
static bool library_loaded;

/* Returns a version like "2.28.9". */
static const char *nccl_version_text(int version, char text[32])
{
    /* Versions up to 2.8 are encoded as major * 1000 + minor * 100 + patch. */
    int scale = version < 10000 ? 1000 : 10000;

    snprintf(text, 32, "%d.%d.%d", version / scale, version % scale / 100, version % 100);
    return text;
}

/* Resolves the library's functions. Returns the first mandatory one that is missing, or NULL. */
static const char *library_resolve(void *handle, struct disti_nccl_api *api)
{
    void *symbol;

#define LIBRARY_TAKE(member, name, parameters)                                                     \
    symbol = dlsym(handle, name);                                                                  \
    memcpy(&api->member, &symbol, sizeof(symbol));
#define LIBRARY_NEED(member, name, parameters)                                                     \
    LIBRARY_TAKE(member, name, parameters)                                                         \
    if (!symbol)                                                                                   \
        return name;
    DISTI_NCCL_OPTIONAL_CALLS(LIBRARY_TAKE)
    DISTI_NCCL_CALLS(LIBRARY_NEED)
    DISTI_NCCL_TEXT_CALLS(LIBRARY_NEED)
#undef LIBRARY_NEED
#undef LIBRARY_TAKE
    return NULL;
}

/* Loads the library. On success it is never closed, since it may have started threads. */
static bool library_try(const struct disti_driver *driver, char *reason, size_t reason_size)
{
    const char *given = disti_env("DIST_NCCL_LIBRARY");
    const bool hip = strcmp(driver->name, "HIP") == 0;
    const char *file = given ? given : hip ? "librccl.so.1" : "libnccl.so.2";
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL), *symbol;
    int (*get_version)(int *), version = 0;
    const char *missing;
    char found[32];

    if (!handle && given)
        snprintf(reason, reason_size, "DIST_NCCL_LIBRARY: %s", dlerror());
    else if (!handle)
        snprintf(reason, reason_size,
                 "cannot load %s (%s): install %s, or set DIST_NCCL_LIBRARY to its path", file,
                 dlerror(), hip ? "AMD's rccl" : "NVIDIA's libnccl2");
    if (!handle)
        return false;
    /*
     * Checks the version before the functions, since an old version also lacks functions. An
     * unknown version is 0.
     */
    symbol = dlsym(handle, "ncclGetVersion");
    memcpy(&get_version, &symbol, sizeof(symbol));
    library_api.version = 0;
    if (symbol && get_version(&version) == DISTI_NCCL_SUCCESS)
        library_api.version = version;
    if (library_api.version < DISTI_NCCL_OLDEST) {
        snprintf(reason, reason_size,
                 "%s is version %s, but libdist requires 2.14.0 or newer: install a newer one, or "
                 "set DIST_NCCL_LIBRARY to its path",
                 file, nccl_version_text(library_api.version, found));
        dlclose(handle);
        return false;
    }
    missing = library_resolve(handle, &library_api);
    if (missing) {
        snprintf(reason, reason_size,
                 "%s has no function %s: install a complete NCCL or RCCL, or set DIST_NCCL_LIBRARY "
                 "to its path",
                 file, missing);
        dlclose(handle);
        return false;
    }
    snprintf(library_api.file, sizeof(library_api.file), "%s", file);
    return true;
}

/* Loads NCCL, or RCCL with HIP's driver, once per process: the file DIST_NCCL_LIBRARY, or the
 * default name. Returns NULL and the reason on failure. Thread-safe. */
static const struct disti_nccl_api *nccl_load(const struct disti_driver *driver, char *reason,
                                              size_t reason_size)
{
    bool loaded;

    pthread_mutex_lock(&library_lock);
    library_loaded = library_loaded || library_try(driver, reason, reason_size);
    loaded = library_loaded;
    pthread_mutex_unlock(&library_lock);
    return loaded ? &library_api : NULL;
}

/* ---- the device, streams and events of a group ---- */

/*
 * Sets this thread to relaxed capture mode. Otherwise, while another thread captures a graph in
 * global mode, calls such as cuMemAlloc or cuEventQuery in this thread would invalidate that graph.
 */
bool disti_nccl_enter(const struct disti_nccl_gpu *gpu, struct disti_nccl_visit *visit)
{
    if (!gpu || !gpu->context || gpu->driver->context_push(gpu->context) != 0)
        return false;
    visit->mode = DISTI_DRIVER_CAPTURE_RELAXED;
    gpu->driver->capture_mode(&visit->mode);
    return true;
}

void disti_nccl_exit(const struct disti_nccl_gpu *gpu, struct disti_nccl_visit *visit)
{
    void *context;

    gpu->driver->capture_mode(&visit->mode);
    gpu->driver->context_pop(&context);
}

dist_status disti_nccl_no_memory(const struct disti_nccl_state *nccl)
{
    return nccl->host->fail(DIST_ERR_NO_MEMORY,
                            "rank %d: out of host memory in backend nccl: free some", nccl->rank);
}

dist_status disti_nccl_no_device(const struct disti_nccl_state *nccl)
{
    return nccl->host->fail(DIST_ERR_SYSTEM,
                            "rank %d cannot use device %d: check its state (nvidia-smi), and start "
                            "the job again",
                            nccl->rank, nccl->device);
}

/* ---- opening a group: devices and communicator ---- */

/* The report of a rank to the other ranks. */
struct open_report {
    char node[48]; /* identifies the machine; NCCL_HOSTID if that is set */
    char bus[20];  /* PCI address of the device */
    int32_t device;
    int32_t status; /* not DIST_OK: the rank has failed, with the reason in `text` */
    char text[176];
};

/* The message that rank 0 broadcasts. */
struct open_id {
    int32_t result; /* NCCL's result */
    struct disti_nccl_id id;
};

__attribute__((format(printf, 3, 4))) static void
open_refuse(struct open_report *report, dist_status status, const char *format, ...)
{
    va_list arguments;

    report->status = status;
    va_start(arguments, format);
    vsnprintf(report->text, sizeof(report->text), format, arguments);
    va_end(arguments);
}

/* ---- the device ---- */

/* Selects the configured device, or the only visible one, or the one with the local rank's
 * number. */
static bool open_choose(struct disti_nccl_state *nccl, const struct dist_backend_config *config,
                        struct open_report *report)
{
    int count = 0, error = nccl->driver->device_count(&count);
    int device = config->device >= 0 ? config->device : config->world_local_rank;

    if (config->device < 0 && count == 1)
        device = 0;
    nccl->device = device;
    if (!error && device >= 0 && device < count)
        return true;
    if (error || count == 0)
        open_refuse(report, DIST_ERR_SYSTEM, "no GPU is visible%s%s: check CUDA_VISIBLE_DEVICES",
                    error ? ": " : "", error ? disti_driver_text(nccl->driver, error) : "");
    else if (config->device >= 0)
        open_refuse(report, DIST_ERR_INVALID_ARGUMENT,
                    "device %d was requested, but only devices 0 to %d exist: check DIST_DEVICE "
                    "and CUDA_VISIBLE_DEVICES",
                    device, count - 1);
    else
        open_refuse(report, DIST_ERR_INVALID_ARGUMENT,
                    "local rank %d finds only devices 0 to %d: start fewer ranks on this machine, "
                    "or set DIST_DEVICE",
                    device, count - 1);
    return false;
}

static bool open_context(struct disti_nccl_state *nccl, struct open_report *report)
{
    const struct disti_driver *driver = nccl->driver;
    struct disti_nccl_gpu *gpu = calloc(1, sizeof(*gpu));
    int error;

    if (!gpu) {
        open_refuse(report, DIST_ERR_NO_MEMORY, "out of host memory for device %d: free some",
                    nccl->device);
        return false;
    }
    nccl->gpu = gpu;
    atomic_init(&gpu->holders, 1);
    gpu->driver = driver;
    gpu->api = nccl->api;
    error = driver->device_get(&gpu->handle, nccl->device);
    if (!error)
        error = driver->context_retain(&gpu->context, gpu->handle);
    if (!error)
        error = driver->device_bus(report->bus, sizeof(report->bus), gpu->handle);
    report->device = nccl->device;
    if (error)
        open_refuse(report, DIST_ERR_SYSTEM,
                    "device %d cannot be used: %s. Check its state (nvidia-smi)", nccl->device,
                    disti_driver_text(driver, error));
    return !error;
}

/* Allocates resources before the ranks exchange their reports, because a rank that fails later
 * makes the other ranks wait for it. */
static void open_resources(struct disti_nccl_state *nccl, struct open_report *report)
{
    const struct disti_driver *driver = nccl->driver;
    struct disti_nccl_visit visit;
    uintptr_t one = 0;
    int error;

    if (!disti_nccl_enter(nccl->gpu, &visit)) {
        open_refuse(report, DIST_ERR_SYSTEM,
                    "device %d cannot be used: check its state (nvidia-smi)", nccl->device);
        return;
    }
    error = driver->stream_create(&nccl->gpu->stream, DISTI_DRIVER_STREAM_NON_BLOCKING);
    if (!error)
        error = driver->event_create(&nccl->gpu->order_event, DISTI_DRIVER_EVENT_NO_TIMING);
    if (!error)
        error = driver->memory_alloc(&one, 1);
    nccl->gpu->one = disti_nccl_pointer(one);
    disti_nccl_exit(nccl->gpu, &visit);
    if (error)
        open_refuse(
            report, DIST_ERR_SYSTEM,
            "cannot create a stream or allocate memory on device %d: %s. End other processes that "
            "use it (nvidia-smi)",
            nccl->device, disti_driver_text(driver, error));
}

/* Checks the reports of all ranks. All ranks have the same reports and get the same result. */
static dist_status open_check(const struct disti_nccl_state *nccl,
                              const struct open_report *reports)
{
    for (int r = 0; r < nccl->ranks; r++) {
        if (reports[r].status != DIST_OK)
            return nccl->host->fail((dist_status)reports[r].status, "rank %d: backend nccl: %.*s",
                                    r, (int)sizeof(reports[r].text), reports[r].text);
    }
    for (int r = 1; r < nccl->ranks; r++) {
        for (int s = 0; s < r; s++) {
            if (strncmp(reports[r].node, reports[s].node, sizeof(reports[r].node)) == 0 &&
                strncmp(reports[r].bus, reports[s].bus, sizeof(reports[r].bus)) == 0)
                return nccl->host->fail(
                    DIST_ERR_INVALID_ARGUMENT,
                    "rank %d and rank %d are both on device %d (%.*s) of one machine, but NCCL "
                    "allows one rank per device: start as many ranks as there are devices, or give "
                    "each its own (DIST_DEVICE, CUDA_VISIBLE_DEVICES)",
                    s, r, reports[r].device, (int)sizeof(reports[r].bus), reports[r].bus);
        }
    }
    return DIST_OK;
}

static dist_status open_exchange(struct disti_nccl_state *nccl,
                                 const struct dist_backend_config *config)
{
    struct open_report report = {.status = DIST_OK};
    struct open_report *reports = calloc((size_t)nccl->ranks, sizeof(*reports));
    dist_status status;
    const char *host;

    if (!reports)
        return disti_nccl_no_memory(nccl);
    host = disti_env("NCCL_HOSTID");
    if (host)
        snprintf(report.node, sizeof(report.node), "%s", host);
    else
        snprintf(report.node, sizeof(report.node), "node %d", config->places[config->rank].node);
    nccl->driver = disti_driver_load(report.text, sizeof(report.text));
    if (nccl->driver)
        nccl->api = nccl_load(nccl->driver, report.text, sizeof(report.text));
    if (!nccl->api)
        report.status = DIST_ERR_NO_BACKEND;
    else if (open_choose(nccl, config, &report) && open_context(nccl, &report))
        open_resources(nccl, &report);
    status = config->all_gather(config->all_gather_arg, &report, reports, sizeof(report));
    if (status == DIST_OK)
        status = open_check(nccl, reports);
    free(reports);
    return status;
}

/* ---- the communicator ---- */

static dist_status open_id(struct disti_nccl_state *nccl, const struct dist_backend_config *config,
                           struct disti_nccl_id *id_p)
{
    struct open_id id = {.result = DISTI_NCCL_SUCCESS};
    dist_status status;

    if (nccl->rank == 0)
        id.result = nccl->api->get_unique_id(&id.id);
    if (config->broadcast) {
        status = config->broadcast(config->all_gather_arg, &id, sizeof(id));
    } else {
        struct open_id *all = calloc((size_t)config->world_size, sizeof(*all));

        if (!all)
            return config->host->fail(DIST_ERR_NO_MEMORY, "rank %d has no memory for %d ranks",
                                      config->rank, config->world_size);
        status = config->all_gather(config->all_gather_arg, &id, all, sizeof(id));
        id = all[0];
        free(all);
    }
    if (status == DIST_OK && id.result != DISTI_NCCL_SUCCESS)
        status = nccl->host->fail(
            DIST_ERR_SYSTEM,
            "rank 0: NCCL cannot create the unique id of the communicator: %s. Check "
            "NCCL_SOCKET_IFNAME, and run with NCCL_DEBUG=INFO",
            nccl->api->error_text(id.result));
    if (status == DIST_OK)
        *id_p = id.id;
    return status;
}

static dist_status open_communicator(struct disti_nccl_state *nccl, struct disti_nccl_id id)
{
    struct disti_nccl_config how = {
        .size = sizeof(how),
        .magic = DISTI_NCCL_MAGIC,
        .version = DISTI_NCCL_OLDEST,
        .blocking = 0,
        .unused = DISTI_NCCL_UNDEFINED,
    };
    char what[64];
    int result = nccl->api->comm_init(&nccl->comm, nccl->ranks, id, nccl->rank, &how);

    snprintf(what, sizeof(what), "joining %d ranks on device %d", nccl->ranks, nccl->device);
    if (result != DISTI_NCCL_SUCCESS && result != DISTI_NCCL_IN_PROGRESS)
        return disti_nccl_fail(nccl, result, what);
    return disti_nccl_wait(nccl, what);
}

static dist_status nccl_open(void *state, const struct dist_backend_config *config)
{
    struct disti_nccl_state *nccl = state;
    struct disti_nccl_visit visit;
    struct disti_nccl_id id;
    dist_status status;

    nccl->host = config->host;
    nccl->rank = config->rank;
    nccl->ranks = config->world_size;
    nccl->timeout_ms = config->timeout_ms;
    nccl->device = -1;
    TAILQ_INIT(&nccl->held);
    TAILQ_INIT(&nccl->issued);
    TAILQ_INIT(&nccl->unmatched);
    TAILQ_INIT(&nccl->kept);
    status = open_exchange(nccl, config);
    if (status != DIST_OK)
        return status;
    if (!disti_nccl_enter(nccl->gpu, &visit))
        return disti_nccl_no_device(nccl);
    nccl->opening = config;
    status = open_id(nccl, config, &id);
    if (status == DIST_OK)
        status = open_communicator(nccl, id);
    nccl->opening = NULL;
    disti_nccl_exit(nccl->gpu, &visit);
    if (status == DIST_OK) {
        char version[32];

        nccl->host->log(DIST_LOG_INFO, "rank %d: NCCL %s (%s), device %d by %s (%s)", nccl->rank,
                        nccl_version_text(nccl->api->version, version), nccl->api->file,
                        nccl->device, nccl->driver->name, nccl->driver->file);
    } else
        disti_nccl_abort(nccl); /* a communicator that is not initialized can only be aborted */
    return status;
}

/* ---- closing a group, in bounded time ---- */

/* Ending a communicator takes milliseconds. If it takes longer than this limit, a peer or the
 * device is stuck, and the group stops waiting. */
#ifndef CLOSE_LIMIT_MS /* its test uses a shorter limit */
#define CLOSE_LIMIT_MS 10000
#endif

/*
 * ---- functions that run in a thread of their own, since NCCL or the driver may block in them ----
 *
 * Each takes over a reference to the group's device and drops it at the end.
 */

/* Frees the resources of staging. */
static void close_stage(struct disti_nccl_gpu *gpu)
{
    struct disti_nccl_region *region;

    while ((region = gpu->regions)) {
        gpu->regions = region->next;
        gpu->driver->memory_free(region->memory);
        free(region);
    }
    for (int i = 0; i < DISTI_NCCL_SLOTS; i++) {
        if (gpu->pinned.events[i])
            gpu->driver->event_destroy(gpu->pinned.events[i]);
    }
    if (gpu->pinned.memory)
        gpu->driver->host_free(gpu->pinned.memory);
}

static void *close_release(void *arg)
{
    struct disti_nccl_gpu *gpu = arg;
    struct disti_nccl_visit visit;

    if (atomic_fetch_sub(&gpu->holders, 1) > 1)
        return NULL;
    if (disti_nccl_enter(gpu, &visit)) {
        const struct disti_driver *driver = gpu->driver;

        close_stage(gpu);
        while (gpu->spares)
            driver->event_destroy(gpu->spare[--gpu->spares]);
        if (gpu->order_event)
            driver->event_destroy(gpu->order_event);
        if (gpu->one)
            driver->memory_free((uintptr_t)gpu->one);
        if (gpu->copies)
            driver->stream_destroy(gpu->copies);
        if (gpu->stream)
            driver->stream_destroy(gpu->stream);
        disti_nccl_exit(gpu, &visit);
    }
    if (gpu->context)
        gpu->driver->context_release(gpu->handle);
    free(gpu);
    return NULL;
}

static void *close_abort(void *arg)
{
    struct disti_nccl_gpu *gpu = arg;
    struct disti_nccl_visit visit;

    if (disti_nccl_enter(gpu, &visit)) {
        gpu->api->comm_abort(gpu->closing);
        disti_nccl_exit(gpu, &visit);
    }
    return close_release(gpu);
}

static void *close_destroy(void *arg)
{
    struct disti_nccl_gpu *gpu = arg;
    struct disti_nccl_visit visit;

    if (disti_nccl_enter(gpu, &visit)) {
        int64_t deadline = disti_deadline_ms(CLOSE_LIMIT_MS);
        struct disti_backoff backoff = {0};
        int error = DISTI_NCCL_SUCCESS, result = gpu->api->comm_finalize(gpu->closing);

        if (result == DISTI_NCCL_IN_PROGRESS || result == DISTI_NCCL_SUCCESS) {
            while (gpu->api->comm_error(gpu->closing, &error) == DISTI_NCCL_SUCCESS &&
                   error == DISTI_NCCL_IN_PROGRESS && !disti_expired(deadline))
                disti_backoff(&backoff);
        }
        if (error == DISTI_NCCL_SUCCESS)
            gpu->api->comm_destroy(gpu->closing);
        else
            gpu->api->comm_abort(gpu->closing);
        disti_nccl_exit(gpu, &visit);
    }
    return close_release(gpu);
}

/* ---- functions that run in the caller ---- */

/* Runs one of the functions above in a thread and waits for it, at most for the limit. If no thread
 * can be created, nothing is released and the reference is leaked. */
static void close_run(const struct disti_nccl_state *nccl, void *(*action)(void *))
{
    int64_t deadline = disti_deadline_ms(CLOSE_LIMIT_MS);
    struct disti_backoff backoff = {0};
    pthread_t thread;

    if (disti_thread_create(&thread, action, nccl->gpu) != 0)
        return;
    while (pthread_tryjoin_np(thread, NULL) == EBUSY) {
        if (disti_expired(deadline)) {
            pthread_detach(thread);
            nccl->host->log(
                DIST_LOG_WARN,
                "rank %d: NCCL did not destroy its communicator within %d s, and "
                "continues in the background: check what device %d is doing (nvidia-smi)",
                nccl->rank, CLOSE_LIMIT_MS / 1000, nccl->device);
            return;
        }
        disti_backoff(&backoff);
    }
}

/* Frees the calls without changing their tickets. */
static void close_forget(struct disti_nccl_state *nccl)
{
    struct disti_nccl_queue *const queues[] = {&nccl->held, &nccl->issued, &nccl->unmatched,
                                               &nccl->kept};
    struct disti_nccl_visit visit;
    struct disti_nccl_call *c;

    if (!disti_nccl_enter(nccl->gpu, &visit))
        return;
    for (int i = 0; i < 4; i++) {
        while ((c = TAILQ_FIRST(queues[i]))) {
            TAILQ_REMOVE(queues[i], c, next);
            disti_nccl_call_free(nccl, c);
        }
    }
    disti_nccl_exit(nccl->gpu, &visit);
}

void disti_nccl_abort(void *state)
{
    struct disti_nccl_state *nccl = state;

    if (!nccl->comm)
        return;
    nccl->gpu->closing = nccl->comm;
    nccl->comm = NULL;
    nccl->batch = false;
    atomic_fetch_add(&nccl->gpu->holders, 1);
    close_run(nccl, close_abort);
    close_forget(nccl);
}

/* The thread takes over the group's own reference, since the group no longer needs the device. */
void disti_nccl_close(void *state)
{
    struct disti_nccl_state *nccl = state;
    bool pending = !TAILQ_EMPTY(&nccl->held) || !TAILQ_EMPTY(&nccl->issued);

    if (!nccl->gpu)
        return;
    close_forget(nccl);
    if (!nccl->comm) {
        close_run(nccl, close_release);
    } else {
        nccl->gpu->closing = nccl->comm;
        close_run(nccl, pending ? close_abort : close_destroy);
    }
    nccl->comm = NULL;
    nccl->gpu = NULL;
}

/* ---- memory for the program ---- */

/* The alignment that dist_alloc promises. */
#define MEMORY_PAGE ((size_t)4096)
#define MEMORY_LARGE ((size_t)2 << 20)

/* An allocation for the program. */
struct disti_nccl_memory {
    struct disti_nccl_memory *next;
    void *memory;   /* address returned to the program */
    void *nccl;     /* address from NCCL, or NULL */
    uintptr_t base; /* address from the driver, or 0 */
    void *handle;   /* handle of its registration, or NULL */
};

static void memory_drop(struct disti_nccl_state *nccl, struct disti_nccl_memory *m)
{
    if (m->handle && nccl->comm)
        nccl->api->comm_deregister(nccl->comm, m->handle);
    if (m->nccl)
        nccl->api->mem_free(m->nccl);
    if (m->base)
        nccl->driver->memory_free(m->base);
    free(m);
}

static size_t memory_page(size_t bytes)
{
    return bytes < MEMORY_LARGE ? MEMORY_PAGE : MEMORY_LARGE;
}

/*
 * Allocates memory from NCCL and registers it, which avoids intermediate copies. Returns false if
 * NCCL cannot allocate suitable memory.
 */
static bool memory_of_nccl(struct disti_nccl_state *nccl, size_t bytes, struct disti_nccl_memory *m)
{
    const struct disti_nccl_api *api = nccl->api;

    if (!api->mem_alloc || !api->mem_free ||
        api->mem_alloc(&m->nccl, bytes) != DISTI_NCCL_SUCCESS || !m->nccl)
        return false;
    /* The memory is not aligned if NCCL's allocator does not use virtual memory management here. */
    if ((uintptr_t)m->nccl % memory_page(bytes)) {
        api->mem_free(m->nccl);
        m->nccl = NULL;
        return false;
    }
    m->memory = m->nccl;
    if (!api->comm_register || !api->comm_deregister ||
        api->comm_register(nccl->comm, m->nccl, bytes, &m->handle) != DISTI_NCCL_SUCCESS)
        m->handle = NULL;
    return true;
}

static bool memory_of_driver(struct disti_nccl_state *nccl, size_t bytes,
                             struct disti_nccl_memory *m)
{
    const size_t page = memory_page(bytes);

    if (bytes > SIZE_MAX - page)
        return false;
    m->nccl = NULL;
    m->base = disti_nccl_device_memory(nccl, bytes + page);
    m->memory = disti_nccl_pointer((m->base + page - 1) / page * page);
    return m->base != 0;
}

/* Zeroes the memory on a separate stream, so that it does not wait for other calls. */
static bool memory_zero(struct disti_nccl_state *nccl, void *memory, size_t bytes)
{
    const struct disti_driver *driver = nccl->driver;
    void *stream = NULL;
    bool good = driver->stream_create(&stream, DISTI_DRIVER_STREAM_NON_BLOCKING) == 0 &&
                driver->fill((uintptr_t)memory, 0, bytes, stream) == 0 &&
                driver->stream_synchronize(stream) == 0;

    if (stream)
        driver->stream_destroy(stream);
    return good;
}

static void *nccl_alloc(void *state, size_t bytes)
{
    struct disti_nccl_state *nccl = state;
    struct disti_nccl_visit visit;
    struct disti_nccl_memory *m;
    void *memory = NULL;

    if (!nccl->comm || !disti_nccl_enter(nccl->gpu, &visit))
        return NULL;
    m = calloc(1, sizeof(*m));
    if (m && (memory_of_nccl(nccl, bytes, m) || memory_of_driver(nccl, bytes, m)) &&
        memory_zero(nccl, m->memory, bytes)) {
        memory = m->memory;
        m->next = nccl->memory;
        nccl->memory = m;
    } else if (m) {
        memory_drop(nccl, m);
    }
    disti_nccl_exit(nccl->gpu, &visit);
    return memory;
}

static void nccl_free(void *state, void *memory)
{
    struct disti_nccl_state *nccl = state;
    struct disti_nccl_memory **entry = &nccl->memory, *m;
    struct disti_nccl_visit visit;

    while (*entry && (*entry)->memory != memory)
        entry = &(*entry)->next;
    m = *entry;
    if (!m || !disti_nccl_enter(nccl->gpu, &visit))
        return;
    *entry = m->next;
    memory_drop(nccl, m);
    disti_nccl_exit(nccl->gpu, &visit);
}

/* ---- the backend ---- */

static dist_status nccl_probe(char *reason, size_t reason_size)
{
    const struct disti_driver *driver = disti_driver_load(reason, reason_size);
    int count = 0, error;

    if (!driver || !nccl_load(driver, reason, reason_size))
        return DIST_ERR_NO_BACKEND;
    error = driver->device_count(&count);
    if (!error && count > 0)
        return DIST_OK;
    snprintf(reason, reason_size, "no GPU is visible%s%s: check CUDA_VISIBLE_DEVICES",
             error ? ": " : "", error ? disti_driver_text(driver, error) : "");
    return DIST_ERR_NO_BACKEND;
}

static dist_status nccl_query(const void *state, dist_collective collective, dist_dtype dtype,
                              dist_op op)
{
    (void)state;
    if ((unsigned)collective >= DIST_COLL_COUNT || (unsigned)dtype >= DIST_DTYPE_COUNT)
        return DIST_ERR_UNSUPPORTED;
    if (disti_algorithm_reduces(collective) &&
        (dtype == DIST_BOOL || !disti_nccl_has_op(op, dtype)))
        return DIST_ERR_UNSUPPORTED;
    return DIST_OK;
}

/* The host waits for calls with data in host memory, and for barriers. Other calls complete on the
 * stream. */
static dist_manner nccl_manner(const void *state, const struct dist_call *call)
{
    (void)state;
    return call->memory == DIST_MEMORY_DEVICE && call->collective != DIST_COLL_BARRIER
               ? DIST_MANNER_STREAM
               : DIST_MANNER_HOST;
}

static const struct dist_backend nccl_backend = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_backend),
    .name = "nccl",
    .summary = "NCCL's or RCCL's collectives on memory of GPUs, ordered by streams",
    .state_size = sizeof(struct disti_nccl_state),
    .probe = nccl_probe,
    .query = nccl_query,
    .open = nccl_open,
    .close = disti_nccl_close,
    .post = disti_nccl_post,
    .progress = disti_nccl_progress,
    .abort = disti_nccl_abort,
    .describe = disti_nccl_describe,
    .alloc = nccl_alloc,
    .free = nccl_free,
    .lacks = DIST_LACKS_ANY_SOURCE | DIST_LACKS_TAGS | DIST_LACKS_NAN,
    .manner = nccl_manner,
    .join = disti_nccl_join,
    .batch = disti_nccl_batch,
};

__attribute__((visibility("default"))) extern const struct dist_module dist_module_entry;
const struct dist_module dist_module_entry = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_module),
    .backend = &nccl_backend,
};
