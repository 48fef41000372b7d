/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators of the stand-in's NCCL: creation, errors and destruction. */
#include "communicator.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

static pthread_mutex_t comm_text_lock = PTHREAD_MUTEX_INITIALIZER;
static char comm_text[512]; /* the process's last error */

/* ---- errors ---- */

int nccl_fail(int result, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    pthread_mutex_lock(&comm_text_lock);
    vsnprintf(comm_text, sizeof(comm_text), format, args);
    pthread_mutex_unlock(&comm_text_lock);
    va_end(args);
    return result;
}

const char *ncclGetLastError(struct ncclComm *comm)
{
    static _Thread_local char text[sizeof(comm_text)];

    (void)comm;
    pthread_mutex_lock(&comm_text_lock);
    memcpy(text, comm_text, sizeof(text));
    pthread_mutex_unlock(&comm_text_lock);
    return text;
}

const char *ncclGetErrorString(int result)
{
    static const char *const texts[] = {
#define COMM_RESULT(name, number, text) [number] = text,
        NCCL_RESULTS(COMM_RESULT)
#undef COMM_RESULT
    };

    if (result < 0 || (size_t)result >= sizeof(texts) / sizeof(texts[0]))
        return "unknown result code";
    return texts[result];
}

void nccl_fail_async(struct ncclComm *comm, int result)
{
    standin_lock();
    atomic_store(&comm->state, result);
    standin_changed();
    standin_unlock();
}

/* Returns the state, which is in progress while it is being finalized. Caller holds the lock. */
static int comm_state(struct ncclComm *comm)
{
    int state = atomic_load(&comm->state);

    if (state == RESULT_Success && comm->finalizing && comm->ended < comm->launched)
        return RESULT_InProgress;
    return state;
}

int ncclCommGetAsyncError(struct ncclComm *comm, int *error)
{
    if (!comm || !error)
        return nccl_fail(RESULT_InvalidArgument, "ncclCommGetAsyncError: comm is NULL");
    standin_lock();
    *error = comm_state(comm);
    standin_unlock();
    return RESULT_Success;
}

int nccl_ready(struct ncclComm *comm)
{
    int state;

    if (!comm)
        return nccl_fail(RESULT_InvalidArgument, "comm argument is NULL");
    standin_lock();
    state = comm_state(comm);
    if (!state && comm->finalizing)
        state = nccl_fail(RESULT_InvalidUsage, "the communicator is finalized");
    standin_unlock();
    if (state == RESULT_InProgress)
        return nccl_fail(RESULT_InvalidArgument, "Attempt to use communicator before the previous "
                                                 "operation returned ncclSuccess");
    return state;
}

/* ---- references ---- */

void nccl_sockets_close(const int *fds, int count)
{
    for (int i = 0; fds && i < count; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
}

static void comm_free(struct ncclComm *comm)
{
    struct nccl_operator *next;

    nccl_sockets_close(comm->to, comm->ranks);
    nccl_sockets_close(comm->from, comm->ranks);
    nccl_sockets_close(&comm->doorbell, 1);
    for (struct nccl_operator *op = comm->operators; op; op = next) {
        next = op->next;
        free(op);
    }
    free(comm->to);
    free(comm->from);
    free(comm);
}

void nccl_comm_drop(struct ncclComm *comm)
{
    if (--comm->users == 0)
        comm_free(comm);
}

int *nccl_sockets_none(int count)
{
    int *fds = malloc((size_t)count * sizeof(*fds));

    for (int i = 0; fds && i < count; i++)
        fds[i] = -1;
    return fds;
}

struct ncclComm *nccl_comm_new(int rank, int ranks, bool blocking)
{
    struct ncclComm *comm = calloc(1, sizeof(*comm));

    if (!comm)
        return NULL;
    comm->rank = rank;
    comm->ranks = ranks;
    comm->blocking = blocking;
    comm->users = 1;
    comm->operator_count = OP_NumOps;
    comm->to = nccl_sockets_none(ranks);
    comm->from = nccl_sockets_none(ranks);
    comm->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (comm->to && comm->from && comm->doorbell >= 0)
        return comm;
    comm_free(comm);
    return NULL;
}

/* ---- creation ---- */

static int comm_check_identities(const struct nccl_identity *identities, int rank, int ranks)
{
    for (int i = 0; i < ranks; i++) {
        if (i != rank && identities[i].device == identities[rank].device)
            return nccl_fail(RESULT_InvalidUsage,
                             "Duplicate GPU detected : rank %d and rank %d both on CUDA device %x",
                             rank, i, 0x1000 + identities[rank].device * 0x1000);
    }
    return RESULT_Success;
}

int nccl_comm_connect(struct ncclComm *comm)
{
    struct nccl_identity own = {
        .rank = comm->rank, .ranks = comm->ranks, .device = standin_device_physical(comm->device)};
    struct nccl_identity *identities = calloc((size_t)comm->ranks, sizeof(*identities));
    int result = identities ? nccl_mesh(comm, comm->id, &own, identities, comm->to, comm->from)
                            : RESULT_SystemError;

    if (!result)
        result = comm_check_identities(identities, comm->rank, comm->ranks);
    free(identities);
    return result;
}

static int comm_make(struct ncclComm *comm, void *arg)
{
    (void)arg;
    if (standin_fault(FAULT_INIT, comm->rank, NULL))
        return nccl_fail(RESULT_SystemError,
                         "stand-in: Error while attaching to shared memory segment (rank %d)",
                         comm->rank);
    if (standin_fault(FAULT_INIT_HANG, comm->rank, NULL)) {
        nccl_hang(comm);
        return RESULT_InternalError;
    }
    return nccl_comm_connect(comm);
}

/* Stores the calling thread's device; NCCL gets it from the runtime, whose default is the first
 * device. */
static int comm_device(int *device_p)
{
    if (standin_current(device_p) != ERROR_OK)
        *device_p = 0;
    if (standin_devices() == 0)
        return nccl_fail(RESULT_UnhandledCudaError, "Cuda failure 'initialization error'");
    return RESULT_Success;
}

int ncclCommInitRankConfig(struct ncclComm **comm_p, int ranks, struct nccl_id id, int rank,
                           struct nccl_config *config)
{
    struct ncclComm *comm;
    int device, result;

    if (comm_p)
        *comm_p = NULL;
    if (!comm_p || ranks < 1 || rank < 0 || rank >= ranks)
        return nccl_note(
            nccl_fail(RESULT_InvalidArgument, "Invalid rank requested : %d/%d", rank, ranks));
    if (config && (config->magic != NCCL_CONFIG_MAGIC || config->size < 24))
        return nccl_note(nccl_fail(RESULT_InvalidArgument,
                                   "ncclConfig_t argument not initialized via "
                                   "NCCL_CONFIG_INITIALIZER"));
    result = comm_device(&device);
    if (result)
        return nccl_note(result);
    comm = nccl_comm_new(rank, ranks, !config || config->blocking != 0);
    if (!comm)
        return nccl_note(nccl_fail(RESULT_SystemError, "out of memory"));
    comm->device = device;
    memcpy(comm->id, id.internal, sizeof(comm->id));
    return nccl_make(comm, comm_make, NULL, comm_p);
}

int ncclCommInitRank(struct ncclComm **comm_p, int ranks, struct nccl_id id, int rank)
{
    return ncclCommInitRankConfig(comm_p, ranks, id, rank, NULL);
}

int ncclGetUniqueId(struct nccl_id *id)
{
    memset(id, 0, sizeof(*id));
    if (getrandom(id->internal, 16, 0) != 16)
        return nccl_fail(RESULT_SystemError, "getrandom failed");
    return RESULT_Success;
}

int ncclGetVersion(int *version)
{
    long number;

    if (!version)
        return nccl_fail(RESULT_InvalidArgument, "version argument is NULL");
    *version = NCCL_VERSION_CODE_OF_STANDIN;
    if (standin_fault(FAULT_VERSION, -1, &number))
        *version = number ? (int)number : 2803;
    return RESULT_Success;
}

/* ---- destruction ---- */

int ncclCommFinalize(struct ncclComm *comm)
{
    int result = nccl_ready(comm);

    if (result)
        return nccl_note(result);
    standin_lock();
    comm->finalizing = true;
    while (comm->blocking && comm->ended < comm->launched && !comm->aborted)
        standin_wait();
    result = comm_state(comm);
    standin_unlock();
    return result;
}

int ncclCommDestroy(struct ncclComm *comm)
{
    if (!comm)
        return RESULT_Success;
    standin_lock();
    while (comm->ended < comm->launched && !comm->aborted)
        standin_wait();
    nccl_comm_drop(comm);
    standin_unlock();
    return RESULT_Success;
}

int ncclCommAbort(struct ncclComm *comm)
{
    uint64_t one = 1;
    long ms;

    if (!comm)
        return RESULT_Success;
    if (standin_fault(FAULT_ABORT_SLOW, comm->rank, &ms))
        standin_sleep_us(ms * 1000);
    standin_lock();
    comm->aborted = true;
    if (write(comm->doorbell, &one, sizeof(one)) != sizeof(one))
        abort();
    standin_changed();
    while (comm->running)
        standin_wait();
    nccl_comm_drop(comm);
    standin_unlock();
    return RESULT_Success;
}

/* ---- properties ---- */

int ncclCommCount(struct ncclComm *comm, int *count)
{
    int result = nccl_ready(comm);

    if (!result)
        *count = comm->ranks;
    return result;
}

int ncclCommCuDevice(struct ncclComm *comm, int *device)
{
    int result = nccl_ready(comm);

    if (!result)
        *device = comm->device;
    return result;
}

int ncclCommUserRank(struct ncclComm *comm, int *rank)
{
    int result = nccl_ready(comm);

    if (!result)
        *rank = comm->rank;
    return result;
}
