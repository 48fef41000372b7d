/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend mpi: ranks and messages from MPI, algorithms of libdist or of MPI. A module. */
#include "transports/mpi/mpi.h"
#include "backends/mpi/native.h"
#include "backends/planned.h"
#include "base/settings/env.h"
#include "device/driver.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t end_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mpi_end *end_open;

/*
 * Called before MPI ends in this process. Other ranks may wait in a call of an open group, and
 * MPI_Finalize waits for these ranks, so they are notified that this rank leaves its groups.
 * Returns the longest timeout of the groups.
 */
static int end_notify(void)
{
    int timeout_ms = 0;

    pthread_mutex_lock(&end_lock);
    for (struct mpi_end *end = end_open; end; end = end->next) {
        if (timeout_ms < end->config->timeout_ms)
            timeout_ms = end->config->timeout_ms;
        end->config->leave(end->config->all_gather_arg,
                           "ended MPI (MPI_Finalize or exit) before destroying the group");
    }
    pthread_mutex_unlock(&end_lock);
    return timeout_ms;
}

/* ---- GPU memory, if the MPI supports it: only for its own collectives ---- */

/* Open MPI and MPICH have this function if they support GPUs. */
extern int MPIX_Query_cuda_support(void) __attribute__((weak));

/* True if the MPI accepts GPU memory. DIST_MPI_CUDA=0|1 overrides what the MPI reports. */
static bool mpi_accepts_devices(void)
{
    const char *setting = disti_env("DIST_MPI_CUDA");

    if (setting)
        return strcmp(setting, "0") != 0;
    return MPIX_Query_cuda_support && MPIX_Query_cuda_support() == 1;
}

/* True if MPI can execute this call in GPU memory, without access to the data by the host. */
static bool native_accepts_devices(const struct disti_native *native, const struct dist_call *call)
{
    size_t count;

    return mpi_accepts_devices() && disti_native_supports(native, call) && call->op != DIST_AVG &&
           !disti_native_stages(native, call, &count) && !disti_native_copies_own(native, call);
}

/* Waits until the work submitted to the call's stream has completed, since MPI has no streams. */
static dist_status native_wait_stream(const struct disti_native *native,
                                      const struct dist_call *call)
{
    const struct disti_driver *driver = disti_driver_loaded();
    int error = 0;

    if (!driver || !(disti_driver_enter(driver, call->in) || disti_driver_enter(driver, call->out)))
        return DIST_OK;
    error = driver->stream_synchronize(call->stream);
    disti_driver_exit(driver);
    if (!error)
        return DIST_OK;
    return native->host->fail(DIST_ERR_SYSTEM, "%s: earlier work on the stream failed: %s",
                              native->host->collective_string(call->collective),
                              disti_driver_text(driver, error));
}

/* ---- the backend ---- */

struct mpi_state {
    /* runs the calls that native mode does not support; must be the first member */
    struct disti_planned planned;
    const struct dist_backend_config *config;
    MPI_Comm comm; /* a communicator for this group only */
    struct disti_native native;
    bool use_native;
    struct mpi_end end;
};

static dist_status mpi_probe(char *reason, size_t reason_size)
{
    int finalized = 0;

    MPI_Finalized(&finalized);
    if (!finalized)
        return DIST_OK;
    snprintf(
        reason, reason_size,
        "the program has already called MPI_Finalize: create groups before it, or choose another "
        "backend");
    return DIST_ERR_NO_BACKEND;
}

static dist_status mpi_query(const void *state, dist_collective collective, dist_dtype dtype,
                             dist_op op)
{
    const struct mpi_state *mpi = state;
    bool fits = (unsigned)collective < DIST_COLL_COUNT && (unsigned)dtype < DIST_DTYPE_COUNT &&
                (unsigned)op < DIST_OP_COUNT;

    /*
     * A query without a state has no host; its caller has already checked that the op fits the
     * dtype.
     */
    if (fits && mpi && mpi->planned.host)
        fits = mpi->planned.host->op_fits(op, dtype);
    return fits ? DIST_OK : DIST_ERR_UNSUPPORTED;
}

/* ---- identification of the ranks ---- */

static int mpi_identify_timeout_ms;

/* Blocks until all ranks have joined, but at most for the timeout. */
static int mpi_all_gather(void *arg, const void *in, void *out, size_t bytes)
{
    MPI_Request request;
    int code;

    if (bytes > INT_MAX || !disti_mpi_lock())
        return -1;
    code = MPI_Iallgather(in, (int)bytes, MPI_BYTE, out, (int)bytes, MPI_BYTE, *(MPI_Comm *)arg,
                          &request);
    disti_mpi_unlock();
    if (code == MPI_SUCCESS && disti_mpi_wait(&request, mpi_identify_timeout_ms))
        return 0;
    disti_mpi_broken();
    return -1;
}

static dist_status mpi_identify(struct dist_identity *identity)
{
    static MPI_Comm world;
    dist_status status = disti_mpi_begin(identity->host, NULL, identity->timeout_ms, &world);

    if (status != DIST_OK)
        return status;
    if (!disti_mpi_lock())
        return disti_mpi_ended(identity->host);
    mpi_identify_timeout_ms = identity->timeout_ms;
    MPI_Comm_rank(world, &identity->rank);
    MPI_Comm_size(world, &identity->world_size);
    disti_mpi_unlock();
    identity->all_gather = mpi_all_gather;
    identity->all_gather_arg = &world;
    identity->peers_lost = disti_mpi_broken;
    return DIST_OK;
}

/* ---- the group ---- */

static dist_status mpi_open_all(void *state, const struct dist_backend_config *config)
{
    struct mpi_state *mpi = state;
    const char *mode = disti_env("DIST_MPI_COLL");
    const struct dist_transport *transports[3] = {0};
    const struct dist_engine_config engine = {
        .size = sizeof(engine), .transports = transports, .transport_context = &mpi->comm};
    dist_status status;

    mpi->planned.host = config->host;
    mpi->config = config;
    mpi->comm = MPI_COMM_NULL;
    mpi->use_native = mode && strcmp(mode, "native") == 0;
    if (mode && !mpi->use_native && strcmp(mode, "auto") != 0 && strcmp(mode, "plan") != 0)
        return mpi->planned.host->fail(
            DIST_ERR_INVALID_ARGUMENT,
            "DIST_MPI_COLL is '%s': set it to plan (libdist's algorithms), native (MPI's) or auto",
            mode);
    status = disti_mpi_communicator(config, &mpi->comm);
    if (status != DIST_OK)
        return status;
    mpi->native = (struct disti_native){.host = config->host,
                                        .comm = mpi->comm,
                                        .ranks = config->world_size,
                                        .rank = config->rank,
                                        .reproducible = config->reproducible};
    transports[0] = config->host->transport_find("shm");
    transports[transports[0] ? 1 : 0] = &disti_transport_mpi;
    status = config->host->engine_open(config, &engine, &mpi->planned.engine);
    if (status == DIST_OK && config->leave) { /* notify the other ranks if MPI ends here */
        mpi->end.config = config;
        pthread_mutex_lock(&end_lock);
        mpi->end.next = end_open;
        end_open = &mpi->end;
        pthread_mutex_unlock(&end_lock);
        disti_mpi_on_end(end_notify);
    }
    return status;
}

/*
 * A rank that did not join will not call MPI_Finalize either, where this rank would wait for it. So
 * disti_mpi_broken() makes this rank skip MPI_Finalize.
 */
static dist_status mpi_open(void *state, const struct dist_backend_config *config)
{
    dist_status status = mpi_open_all(state, config);

    if (status == DIST_ERR_PEER_LOST || status == DIST_ERR_TIMEOUT)
        disti_mpi_broken();
    return status;
}

static void mpi_drop(struct mpi_state *mpi)
{
    struct mpi_end **entry = &end_open;

    pthread_mutex_lock(&end_lock);
    while (*entry && *entry != &mpi->end)
        entry = &(*entry)->next;
    if (*entry)
        *entry = mpi->end.next;
    pthread_mutex_unlock(&end_lock);
    disti_native_drop(&mpi->native);
    if (mpi->planned.engine)
        mpi->planned.host->engine_close(mpi->planned.engine);
    mpi->planned.engine = NULL;
}

/* Freeing a communicator is collective, so it is done only if all ranks have left together.
 * Otherwise the communicator is left to MPI_Finalize. */
static void mpi_close(void *state)
{
    struct mpi_state *mpi = state;
    bool open = mpi->planned.engine != NULL, whole = open && mpi->config->left;

    mpi_drop(mpi);
    if (open && !whole) /* not all ranks will call MPI_Finalize */
        disti_mpi_broken();
    if (whole)
        disti_mpi_communicator_free(&mpi->comm);
}

static void mpi_abort(void *state)
{
    disti_mpi_broken();
    mpi_drop(state);
}

static dist_status mpi_post(void *state, const struct dist_call *call, struct dist_ticket *ticket)
{
    struct mpi_state *mpi = state;
    dist_status status = DIST_OK;

    if (!mpi->use_native || !disti_native_supports(&mpi->native, call))
        return mpi->planned.host->engine_post(mpi->planned.engine, call, ticket);
    if (call->memory != DIST_MEMORY_HOST)
        status = native_wait_stream(&mpi->native, call);
    return status == DIST_OK ? disti_native_post(&mpi->native, call, ticket) : status;
}

static dist_status mpi_at_once(void *state, const struct dist_call *call)
{
    struct mpi_state *mpi = state;

    if (mpi->use_native && disti_native_supports(&mpi->native, call))
        return DIST_ERR_UNSUPPORTED;
    return mpi->planned.host->engine_at_once(mpi->planned.engine, call);
}

/* Plans need memory that the host can access. */
static dist_manner mpi_manner(const void *state, const struct dist_call *call)
{
    const struct mpi_state *mpi = state;

    if (call->memory == DIST_MEMORY_HOST ||
        (mpi->use_native && native_accepts_devices(&mpi->native, call)))
        return DIST_MANNER_HOST;
    return DIST_MANNER_STAGED;
}

/* Native mode prepares nothing. */
static dist_status mpi_prepare(void *state, const struct dist_call *call, void **prepared_p)
{
    struct mpi_state *mpi = state;

    if (!mpi->use_native || !disti_native_supports(&mpi->native, call))
        return mpi->planned.host->engine_prepare(mpi->planned.engine, call, prepared_p);
    *prepared_p = NULL;
    return DIST_OK;
}

static int mpi_progress(void *state)
{
    struct mpi_state *mpi = state;
    int native = mpi->native.calls ? disti_native_progress(&mpi->native) : 0;
    int engine = native < 0 ? 0 : mpi->planned.host->engine_progress(mpi->planned.engine);

    return native < 0 ? native : engine < 0 ? engine : native + engine;
}

static bool mpi_threads(const void *state)
{
    (void)state;
    return disti_mpi_threads();
}

static int mpi_arm(void *state, int *fds, int room)
{
    struct mpi_state *mpi = state;

    if (mpi->native.calls)
        return DIST_ARM_BLIND; /* MPI has no descriptor to wait on */
    return mpi->planned.host->engine_arm(mpi->planned.engine, fds, room);
}

static const struct dist_backend mpi_backend = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_backend),
    .name = "mpi",
    .summary = "ranks from mpirun; libdist's algorithms over shared memory and MPI messages, or "
               "MPI's own (" DISTI_MPI_FLAVOUR ")",
    .state_size = sizeof(struct mpi_state),
    .probe = mpi_probe,
    .query = mpi_query,
    .open = mpi_open,
    .close = mpi_close,
    .post = mpi_post,
    .at_once = mpi_at_once,
    .progress = mpi_progress,
    .abort = mpi_abort,
    .arm = mpi_arm,
    .disarm = disti_planned_disarm,
    .describe = disti_planned_describe,
    .prepare = mpi_prepare,
    .release = disti_planned_release,
    .meets = true,
    .identify = mpi_identify,
    .threads = mpi_threads,
    .manner = mpi_manner,
};

static const struct dist_transport *const mpi_transports[] = {&disti_transport_mpi, NULL};

__attribute__((visibility("default"))) extern const struct dist_module dist_module_entry;
const struct dist_module dist_module_entry = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_module),
    .backend = &mpi_backend,
    .transports = mpi_transports,
};
