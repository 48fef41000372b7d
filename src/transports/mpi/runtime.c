/* SPDX-License-Identifier: BSD-3-Clause */
/* The MPI runtime of this process: begun when it is needed, ended when the process exits. */
#include "transports/mpi/mpi.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static pthread_mutex_t runtime_lock = PTHREAD_MUTEX_INITIALIZER;
static MPI_Comm runtime_world = MPI_COMM_NULL;
static bool runtime_is_broken;

static void runtime_end(void)
{
    int finalized = 0;

    MPI_Finalized(&finalized);
    if (!finalized && !runtime_is_broken)
        MPI_Finalize();
}

void disti_mpi_broken(void)
{
    pthread_mutex_lock(&runtime_lock);
    runtime_is_broken = true;
    pthread_mutex_unlock(&runtime_lock);
}

dist_status disti_mpi_fail(const struct dist_host *host, const char *call, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;

    MPI_Error_string(code, text, &length);
    return host->fail(DIST_ERR_SYSTEM, "%s: %s", call, text);
}

/* MPI_Init unless the program has called it. Once it has ended it cannot begin again. */
static dist_status runtime_init(const struct dist_host *host)
{
    int initialized = 0, finalized = 0, provided, code;

    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (finalized)
        return host->fail(DIST_ERR_UNSUPPORTED,
                          "the program has called MPI_Finalize already, and "
                          "MPI cannot be started twice: open the group before");
    if (initialized)
        return DIST_OK;
    code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    if (code != MPI_SUCCESS)
        return disti_mpi_fail(host, "MPI_Init_thread", code);
    if (provided < MPI_THREAD_SERIALIZED)
        host->log(DIST_LOG_WARN, "this MPI is not thread-safe (level %d): use one thread",
                  provided);
    atexit(runtime_end);
    return DIST_OK;
}

static pthread_mutex_t runtime_calls = PTHREAD_MUTEX_INITIALIZER;

void disti_mpi_lock(void)
{
    pthread_mutex_lock(&runtime_calls);
}

void disti_mpi_unlock(void)
{
    pthread_mutex_unlock(&runtime_calls);
}

static int64_t runtime_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

bool disti_mpi_wait(MPI_Request *request, int timeout_ms)
{
    const struct timespec nap = {0, 100 * 1000};
    int64_t start = runtime_now_ms();
    int done = 0;

    while (MPI_Test(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done) {
        if (runtime_now_ms() - start > timeout_ms)
            return false;
        nanosleep(&nap, NULL);
    }
    return done;
}

dist_status disti_mpi_dup(const struct dist_host *host, int timeout_ms, MPI_Comm *comm_p)
{
    MPI_Comm world;
    MPI_Request request;
    dist_status status = disti_mpi_begin(host, &world);
    int code;

    if (status != DIST_OK)
        return status;
    code = MPI_Comm_idup(world, comm_p, &request);
    if (code != MPI_SUCCESS)
        return disti_mpi_fail(host, "MPI_Comm_idup", code);
    if (!disti_mpi_wait(&request, timeout_ms))
        return host->fail(DIST_ERR_TIMEOUT,
                          "not every rank opened backend mpi within %d ms: see "
                          "what the missing ranks print",
                          timeout_ms);
    MPI_Comm_set_errhandler(*comm_p, MPI_ERRORS_RETURN);
    return DIST_OK;
}

dist_status disti_mpi_begin(const struct dist_host *host, MPI_Comm *world_p)
{
    dist_status status = DIST_OK;
    int code;

    pthread_mutex_lock(&runtime_lock);
    if (runtime_world == MPI_COMM_NULL) {
        status = runtime_init(host);
        if (status != DIST_OK)
            goto out;
        code = MPI_Comm_dup(MPI_COMM_WORLD, &runtime_world);
        if (code != MPI_SUCCESS) {
            status = disti_mpi_fail(host, "MPI_Comm_dup", code);
            goto out;
        }
        MPI_Comm_set_errhandler(runtime_world, MPI_ERRORS_RETURN);
    }
    *world_p = runtime_world;
out:
    pthread_mutex_unlock(&runtime_lock);
    return status;
}
