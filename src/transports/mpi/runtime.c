/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The MPI runtime of this process: initialized on first use, finalized when the process exits.
 * Creates the communicators of groups.
 */
#include "base/backoff.h"
#include "base/clock.h"
#include "transports/mpi/mpi.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

static pthread_mutex_t runtime_lock = PTHREAD_MUTEX_INITIALIZER;
/* The variables below are protected by runtime_lock. */
static MPI_Comm runtime_world = MPI_COMM_NULL;
static bool runtime_is_started, runtime_is_broken, runtime_is_own;
static int runtime_level = MPI_THREAD_SINGLE;
static pid_t runtime_process; /* the process that uses MPI; a forked child must not */
static int (*runtime_on_end)(void);

/* At exit: the interval and number of attempts to get the lock, while another thread holds it. */
#define RUNTIME_SLEEP_NS (10 * 1000 * 1000)
#define RUNTIME_TRIES 100

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

/* An attribute's delete callback. MPI_Finalize first frees MPI_COMM_SELF, which calls it. */
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

/*
 * Like disti_mpi_wait, but also stops if `config` (may be NULL) reports that a rank of the group
 * being opened is lost; it then stores that status in *lost_p, which the caller sets to OK.
 */
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

/*
 * Runs when the process exits, in any thread. Calls the registered function, which notifies the
 * other ranks of groups that are still open. If it requests a wait, calls MPI_Finalize only if all
 * ranks exit in time; otherwise MPI_Finalize could block forever. Does nothing in a forked child,
 * which must not use MPI.
 */
static void runtime_end(void)
{
    int finalized = 0, wait_ms, tries = 0;
    bool all_end = true;

    if (getpid() != runtime_process)
        return;
    /*
     * Another thread may hold the lock for long, and if exit was called within an MPI call, this
     * thread itself holds it. So the attempts are limited.
     */
    while (pthread_mutex_trylock(&runtime_lock) != 0) {
        disti_sleep_ns(RUNTIME_SLEEP_NS);
        if (++tries == RUNTIME_TRIES)
            return;
    }
    MPI_Finalized(&finalized);
    if (!finalized && !runtime_is_broken) {
        wait_ms = runtime_on_end ? runtime_on_end() : 0;
        if (wait_ms) { /* skip MPI_Finalize unless all ranks exit in time */
            MPI_Comm base = runtime_world != MPI_COMM_NULL ? runtime_world : MPI_COMM_WORLD;
            MPI_Request request;

            all_end = MPI_Ibarrier(base, &request) == MPI_SUCCESS;
            pthread_mutex_unlock(&runtime_lock);
            all_end = all_end && disti_mpi_wait(&request, wait_ms);
            pthread_mutex_lock(&runtime_lock);
        }
        if (all_end)
            MPI_Finalize();
    }
    pthread_mutex_unlock(&runtime_lock);
}

/* Initializes MPI unless the program has done so. The caller holds the lock. */
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

/*
 * Initializes MPI if needed. MPI_Init_thread may wait, without a time limit, for all ranks that
 * mpirun started.
 */
static dist_status mpi_start(const struct dist_host *host)
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

/*
 * Duplicates a communicator. Collective over its ranks; waits like runtime_wait. MPI writes the new
 * handle to allocated memory, which is not freed after a timeout, since MPI may still write to it.
 */
static dist_status mpi_dup(const struct dist_host *host, const struct dist_backend_config *config,
                           MPI_Comm from, int timeout_ms, MPI_Comm *comm_p)
{
    MPI_Comm *copy = malloc(sizeof(*copy));
    MPI_Request request;
    dist_status status, lost = DIST_OK;

    if (!copy)
        return host->fail(DIST_ERR_NO_MEMORY, "no memory for a communicator");
    if (disti_mpi_lock()) {
        int code = MPI_Comm_idup(from, copy, &request);

        status = code == MPI_SUCCESS ? DIST_OK : disti_mpi_fail(host, "MPI_Comm_idup", code);
        disti_mpi_unlock();
    } else {
        status = disti_mpi_ended(host);
    }
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
    dist_status status = mpi_start(host);

    if (status != DIST_OK)
        return status;
    pthread_mutex_lock(&begins);
    *world_p = runtime_world;
    if (*world_p == MPI_COMM_NULL)
        status = mpi_dup(host, config, MPI_COMM_WORLD, timeout_ms, world_p);
    if (status == DIST_OK) {
        pthread_mutex_lock(&runtime_lock);
        runtime_world = *world_p;
        pthread_mutex_unlock(&runtime_lock);
    }
    pthread_mutex_unlock(&begins);
    return status;
}

/* A group's communicator: a duplicate of the world's, or a new one of some of the world's ranks. */

#define COMM_SLEEP_MS 1
#define COMM_TAGS 32768 /* MPI guarantees tags up to 32767 */

/*
 * Gets this process's rank in `base` and the number of ranks of `base`. Returns false if MPI has
 * been finalized.
 */
static bool comm_locate(MPI_Comm base, int *rank_p, int *ranks_p)
{
    if (!disti_mpi_lock())
        return false;
    MPI_Comm_rank(base, rank_p);
    MPI_Comm_size(base, ranks_p);
    disti_mpi_unlock();
    return true;
}

static dist_status comm_of_world(const struct dist_backend_config *config, MPI_Comm *comm_p)
{
    const struct dist_host *host = config->host;
    dist_status status = mpi_start(host);
    int rank = 0, ranks = 0;
    MPI_Comm world;

    if (status != DIST_OK)
        return status;
    if (!comm_locate(MPI_COMM_WORLD, &rank, &ranks))
        return disti_mpi_ended(host);
    if (ranks != config->world_size)
        return host->fail(DIST_ERR_RENDEZVOUS,
                          "the world has %d ranks, but MPI started %d: start the program "
                          "with mpirun -np %d, or choose another backend, such as gloo, for some "
                          "of an MPI program's ranks",
                          config->world_size, ranks, config->world_size);
    if (rank != config->rank)
        return host->fail(DIST_ERR_RENDEZVOUS,
                          "rank %d is rank %d for MPI: backend mpi needs the ranks that mpirun "
                          "assigns: do not set them, or choose another backend",
                          config->rank, rank);
    /* If a rank has exited, MPI would block. This exchange through the store fails instead. */
    status = config->all_gather(config->all_gather_arg, NULL, NULL, 0);
    if (status == DIST_OK)
        status = disti_mpi_begin(host, config, config->timeout_ms, &world);
    return status == DIST_OK ? mpi_dup(host, config, world, config->timeout_ms, comm_p) : status;
}

/*
 * MPI_Comm_create_group blocks while its caller holds the lock of its process. If two processes
 * created the same two groups at once but in different order, each from two threads, they would
 * deadlock. So the members of a group vote through the store, and call MPI only after each member
 * has locked comm_creating in its own process:
 *
 *      rank 0   group A: ready    group B: busy          A: ready -> all ready: create
 *      rank 1   group A: busy     group B: ready  sleep  A: ready -> all ready: create
 */
enum comm_vote { COMM_READY, COMM_BUSY, COMM_FOREIGN, COMM_LATE };

static pthread_mutex_t comm_creating = PTHREAD_MUTEX_INITIALIZER;

/*
 * Returns this rank's vote. READY: this call has locked comm_creating. BUSY: another group's
 * creation has locked it. LATE: it is still locked after the timeout (`late`). FOREIGN: the ranks
 * of the world differ from MPI's, or MPI is not initialized.
 */
static enum comm_vote comm_vote(const struct dist_backend_config *config, bool late,
                                MPI_Comm *base_p)
{
    int rank = -1, ranks = 0, initialized = 0;

    /* Sets *base_p to a communicator of all ranks if MPI has been initialized. */
    if (disti_mpi_lock()) {
        MPI_Initialized(&initialized);
        *base_p = runtime_world != MPI_COMM_NULL ? runtime_world : MPI_COMM_WORLD;
        disti_mpi_unlock();
    }
    if (!initialized || !comm_locate(*base_p, &rank, &ranks) ||
        rank != config->members[config->rank])
        return COMM_FOREIGN;
    for (int r = 0; r < config->world_size; r++) {
        if (config->members[r] < 0 || config->members[r] >= ranks)
            return COMM_FOREIGN;
    }
    if (pthread_mutex_trylock(&comm_creating) == 0)
        return COMM_READY;
    return late ? COMM_LATE : COMM_BUSY;
}

/*
 * Votes until all members hold comm_creating. Different groups sleep for different times between
 * their votes, so that one of them soon succeeds.
 */
static dist_status comm_agree(const struct dist_backend_config *config, MPI_Comm *base_p)
{
    int64_t sleep_ns = (1 + config->group % 7) * INT64_C(1000000) * COMM_SLEEP_MS;
    uint8_t *votes = malloc((size_t)config->world_size);
    int64_t deadline = disti_deadline_ms(config->timeout_ms);
    dist_status status = DIST_OK;
    bool agreed = false;

    if (!votes)
        return config->host->fail(DIST_ERR_NO_MEMORY, "no memory for a communicator");
    while (status == DIST_OK && !agreed) {
        uint8_t mine = (uint8_t)comm_vote(config, disti_expired(deadline), base_p);

        status = config->all_gather(config->all_gather_arg, &mine, votes, sizeof(mine));
        agreed = status == DIST_OK;
        for (int r = 0; r < config->world_size && status == DIST_OK; r++) {
            agreed = agreed && votes[r] == COMM_READY;
            if (votes[r] == COMM_FOREIGN)
                status = config->host->fail(
                    DIST_ERR_UNSUPPORTED,
                    "rank %d of the world has another rank in MPI, or has not started MPI: start "
                    "all ranks with one mpirun, or choose another backend for this group",
                    config->members[r]);
            else if (votes[r] == COMM_LATE)
                status = config->host->fail(
                    DIST_ERR_TIMEOUT,
                    "rank %d of the world has been creating another group with MPI for %d ms: "
                    "check that all ranks of that group create it",
                    config->members[r], config->timeout_ms);
        }
        if (mine == COMM_READY && !agreed)
            pthread_mutex_unlock(&comm_creating);
        if (status == DIST_OK && !agreed)
            disti_sleep_ns(sleep_ns);
    }
    free(votes);
    return status;
}

static dist_status comm_of_members(const struct dist_backend_config *config, MPI_Comm *comm_p)
{
    MPI_Comm base = MPI_COMM_NULL;
    dist_status status = comm_agree(config, &base);

    if (status != DIST_OK)
        return status;
    if (disti_mpi_lock()) {
        MPI_Group all = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
        int code = MPI_Comm_group(base, &all);

        if (code == MPI_SUCCESS)
            code = MPI_Group_incl(all, config->world_size, config->members, &members);
        if (code == MPI_SUCCESS)
            code = MPI_Comm_create_group(base, members, (int)(config->group % COMM_TAGS), comm_p);
        if (code == MPI_SUCCESS)
            MPI_Comm_set_errhandler(*comm_p, MPI_ERRORS_RETURN);
        if (members != MPI_GROUP_NULL)
            MPI_Group_free(&members);
        if (all != MPI_GROUP_NULL)
            MPI_Group_free(&all);
        if (code != MPI_SUCCESS)
            status = disti_mpi_fail(config->host, "MPI_Comm_create_group", code);
        disti_mpi_unlock();
    } else {
        status = disti_mpi_ended(config->host);
    }
    pthread_mutex_unlock(&comm_creating);
    return status;
}

dist_status disti_mpi_communicator(const struct dist_backend_config *config, MPI_Comm *comm_p)
{
    return config->members ? comm_of_members(config, comm_p) : comm_of_world(config, comm_p);
}

void disti_mpi_communicator_free(MPI_Comm *comm)
{
    if (*comm == MPI_COMM_NULL || !disti_mpi_lock())
        return;
    MPI_Comm_free(comm);
    disti_mpi_unlock();
}
