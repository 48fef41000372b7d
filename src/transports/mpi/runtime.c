/* SPDX-License-Identifier: BSD-3-Clause */
/* The MPI runtime of this process: begun when it is needed, ended when the process exits. */
#include "base/backoff.h"
#include "base/clock.h"
#include "transports/mpi/mpi.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

static pthread_mutex_t runtime_lock = PTHREAD_MUTEX_INITIALIZER;
/* Under the lock. */
static MPI_Comm runtime_world = MPI_COMM_NULL;
static bool runtime_is_started, runtime_is_broken, runtime_is_own;
static int runtime_level = MPI_THREAD_SINGLE;
static pid_t runtime_process; /* that has started MPI */
static int (*runtime_on_end)(void);

/* How long an exit waits for a thread that is in MPI. */
#define RUNTIME_NAP_NS (10 * 1000 * 1000)
#define RUNTIME_LOOKS 100

bool disti_mpi_lock(void)
{
    int finalized = 0;

    pthread_mutex_lock(&runtime_lock);
    MPI_Finalized(&finalized);
    if (finalized)
        pthread_mutex_unlock(&runtime_lock);
    return !finalized;
}

void disti_mpi_unlock(void)
{
    pthread_mutex_unlock(&runtime_lock);
}

/* The first thing that MPI_Finalize does, the program's or ours, is to free MPI_COMM_SELF. */
static int runtime_ending(MPI_Comm self, int key, void *value, void *opaque)
{
    (void)self;
    (void)key;
    (void)value;
    (void)opaque;
    if (getpid() == runtime_process && runtime_on_end)
        runtime_on_end();
    return MPI_SUCCESS;
}

void disti_mpi_on_end(int (*call)(void))
{
    int key;

    if (!disti_mpi_lock())
        return;
    if (!runtime_on_end &&
        MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, runtime_ending, &key, NULL) == MPI_SUCCESS) {
        runtime_process = getpid();
        runtime_on_end = call;
        MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
        MPI_Comm_free_keyval(&key);
    }
    disti_mpi_unlock();
}

void disti_mpi_broken(void)
{
    pthread_mutex_lock(&runtime_lock);
    runtime_is_broken = true;
    pthread_mutex_unlock(&runtime_lock);
}

bool disti_mpi_threads(void)
{
    bool fit;

    pthread_mutex_lock(&runtime_lock);
    fit = runtime_level >= MPI_THREAD_MULTIPLE ||
          (runtime_level >= MPI_THREAD_SERIALIZED && runtime_is_own);
    pthread_mutex_unlock(&runtime_lock);
    return fit;
}

dist_status disti_mpi_fail(const struct dist_host *host, const char *call, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;

    MPI_Error_string(code, text, &length);
    return host->fail(DIST_ERR_SYSTEM, "%s: %s", call, text);
}

dist_status disti_mpi_ended(const struct dist_host *host)
{
    return host->fail(DIST_ERR_UNSUPPORTED, "the program has already called MPI_Finalize, and MPI "
                                            "cannot start twice: create and destroy groups before");
}

/* Not longer than until a rank of the group that is being opened is lost. config may be NULL. */
static bool runtime_wait(MPI_Request *request, int timeout_ms,
                         const struct dist_backend_config *config, dist_status *lost_p)
{
    int64_t deadline = disti_deadline_ms(timeout_ms);
    struct disti_backoff backoff = {0};
    int done = 0;

    while (disti_mpi_lock()) {
        int code = MPI_Test(request, &done, MPI_STATUS_IGNORE);

        disti_mpi_unlock();
        if (code != MPI_SUCCESS || done)
            return code == MPI_SUCCESS;
        if (config && config->lost)
            *lost_p = config->lost(config->all_gather_arg);
        if (*lost_p != DIST_OK || disti_expired(deadline))
            return false;
        disti_backoff(&backoff);
    }
    return false;
}

bool disti_mpi_wait(MPI_Request *request, int timeout_ms)
{
    dist_status lost = DIST_OK;

    return runtime_wait(request, timeout_ms, NULL, &lost);
}

/* Takes the lock, unless a thread keeps it: perhaps this very one, which exits in a call of MPI's.
 */
static bool runtime_lock_soon(void)
{
    for (int looks = 0; looks < RUNTIME_LOOKS; looks++) {
        if (pthread_mutex_trylock(&runtime_lock) == 0)
            return true;
        disti_sleep_ns(RUNTIME_NAP_NS);
    }
    return false;
}

/* Do all ranks come to their end within that time? With the lock held, but for naps. */
static bool runtime_all_end(int timeout_ms)
{
    MPI_Comm base = runtime_world != MPI_COMM_NULL ? runtime_world : MPI_COMM_WORLD;
    MPI_Request request;
    bool come = MPI_Ibarrier(base, &request) == MPI_SUCCESS;

    pthread_mutex_unlock(&runtime_lock);
    come = come && disti_mpi_wait(&request, timeout_ms);
    pthread_mutex_lock(&runtime_lock);
    return come;
}

/*
 * At exit, in whatever thread. Where groups are left open the others are told, and MPI_Finalize is
 * left out if they do not end as well: then it might wait for ever. A forked child has no MPI.
 */
static void runtime_end(void)
{
    int finalized = 0, wait_ms;

    if (getpid() != runtime_process || !runtime_lock_soon())
        return;
    MPI_Finalized(&finalized);
    if (!finalized && !runtime_is_broken) {
        wait_ms = runtime_on_end ? runtime_on_end() : 0;
        if (wait_ms == 0 || runtime_all_end(wait_ms))
            MPI_Finalize();
    }
    pthread_mutex_unlock(&runtime_lock);
}

/* MPI_Init unless the program has called it. With the lock held. */
static dist_status runtime_init(const struct dist_host *host)
{
    int initialized = 0, code;

    MPI_Initialized(&initialized);
    if (initialized) {
        MPI_Query_thread(&runtime_level);
        return DIST_OK;
    }
    code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &runtime_level);
    if (code != MPI_SUCCESS)
        return disti_mpi_fail(host, "MPI_Init_thread", code);
    runtime_is_own = true;
    if (runtime_level < MPI_THREAD_SERIALIZED)
        host->log(DIST_LOG_WARN, "this MPI is not thread-safe (level %d): use one thread",
                  runtime_level);
    runtime_process = getpid();
    atexit(runtime_end);
    return DIST_OK;
}

dist_status disti_mpi_start(const struct dist_host *host)
{
    dist_status status = DIST_OK;

    if (!disti_mpi_lock())
        return disti_mpi_ended(host);
    if (!runtime_is_started) {
        status = runtime_init(host);
        runtime_is_started = status == DIST_OK;
    }
    disti_mpi_unlock();
    return status;
}

bool disti_mpi_started(MPI_Comm *base_p)
{
    int initialized = 0;

    if (!disti_mpi_lock())
        return false;
    MPI_Initialized(&initialized);
    *base_p = runtime_world != MPI_COMM_NULL ? runtime_world : MPI_COMM_WORLD;
    disti_mpi_unlock();
    return initialized;
}

static dist_status runtime_dup_start(const struct dist_host *host, MPI_Comm from, MPI_Comm *copy,
                                     MPI_Request *request)
{
    dist_status status = DIST_OK;
    int code;

    if (!disti_mpi_lock())
        return disti_mpi_ended(host);
    code = MPI_Comm_idup(from, copy, request);
    if (code != MPI_SUCCESS)
        status = disti_mpi_fail(host, "MPI_Comm_idup", code);
    disti_mpi_unlock();
    return status;
}

/* The copy's handle lies in memory of its own, since MPI may write it after we have given up. */
dist_status disti_mpi_dup(const struct dist_host *host, const struct dist_backend_config *config,
                          MPI_Comm from, int timeout_ms, MPI_Comm *comm_p)
{
    MPI_Comm *copy = malloc(sizeof(*copy));
    MPI_Request request;
    dist_status status, lost = DIST_OK;

    if (!copy)
        return host->fail(DIST_ERR_NO_MEMORY, "no memory for a communicator");
    status = runtime_dup_start(host, from, copy, &request);
    if (status == DIST_OK && !runtime_wait(&request, timeout_ms, config, &lost)) {
        disti_mpi_broken();
        if (lost != DIST_OK)
            return lost;
        return host->fail(
            DIST_ERR_TIMEOUT,
            "not every rank opened backend mpi within %d ms: check what the missing ranks print",
            timeout_ms);
    }
    if (status == DIST_OK && !disti_mpi_lock())
        status = disti_mpi_ended(host);
    if (status == DIST_OK) {
        MPI_Comm_set_errhandler(*copy, MPI_ERRORS_RETURN);
        disti_mpi_unlock();
        *comm_p = *copy;
    }
    free(copy);
    return status;
}

dist_status disti_mpi_begin(const struct dist_host *host, const struct dist_backend_config *config,
                            int timeout_ms, MPI_Comm *world_p)
{
    static pthread_mutex_t begins = PTHREAD_MUTEX_INITIALIZER;
    dist_status status = disti_mpi_start(host);

    if (status != DIST_OK)
        return status;
    pthread_mutex_lock(&begins);
    *world_p = runtime_world;
    if (*world_p == MPI_COMM_NULL)
        status = disti_mpi_dup(host, config, MPI_COMM_WORLD, timeout_ms, world_p);
    if (status == DIST_OK) {
        pthread_mutex_lock(&runtime_lock);
        runtime_world = *world_p;
        pthread_mutex_unlock(&runtime_lock);
    }
    pthread_mutex_unlock(&begins);
    return status;
}
