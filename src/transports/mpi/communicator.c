/* SPDX-License-Identifier: BSD-3-Clause */
/* The communicator of a group: a copy of the world's, or one of some of its ranks. */
#include "base/clock.h"
#include "transports/mpi/mpi.h"

#include <pthread.h>
#include <stdlib.h>

#define COMM_NAP_MS 1
#define COMM_TAGS 32768 /* MPI promises tags up to 32767 */

/* Where this process is among the ranks that MPI has started. */
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
    dist_status status = disti_mpi_start(host);
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
                          "gives: do not set them, or choose another backend",
                          config->rank, rank);
    /* MPI would wait for a rank that has ended. The store knows of it, up to here. */
    status = config->all_gather(config->all_gather_arg, NULL, NULL, 0);
    if (status == DIST_OK)
        status = disti_mpi_begin(host, config, config->timeout_ms, &world);
    return status == DIST_OK ? disti_mpi_dup(host, config, world, config->timeout_ms, comm_p)
                             : status;
}

/*
 * MPI_Comm_create_group blocks, under the lock. Two threads of two processes that make two groups,
 * one first here, the other first there, would wait for each other for ever. So the members vote,
 * through the store, and MPI is asked once each of them has said that nothing stands before it:
 *
 *      rank 0   group A: ready    group B: busy         A: ready -> all are: create
 *      rank 1   group A: busy     group B: ready  nap   A: ready -> all are: create
 */
enum comm_vote { COMM_READY, COMM_BUSY, COMM_FOREIGN, COMM_LATE };

static pthread_mutex_t comm_creating = PTHREAD_MUTEX_INITIALIZER;

/* READY: comm_creating is held. FOREIGN: the world's ranks are not MPI's. LATE: busy too long. */
static enum comm_vote comm_vote(const struct dist_backend_config *config, bool late,
                                MPI_Comm *base_p)
{
    int rank = -1, ranks = 0;

    if (!disti_mpi_started(base_p) || !comm_locate(*base_p, &rank, &ranks) ||
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

/* What a vote against it means. */
static dist_status comm_refused(const struct dist_backend_config *config, int rank,
                                enum comm_vote vote)
{
    if (vote == COMM_FOREIGN)
        return config->host->fail(
            DIST_ERR_UNSUPPORTED,
            "rank %d of the world has another rank in MPI, or has not started MPI: start all ranks "
            "with one mpirun, or choose another backend for this group",
            config->members[rank]);
    if (vote == COMM_LATE)
        return config->host->fail(DIST_ERR_TIMEOUT,
                                  "rank %d of the world has been creating another group with MPI "
                                  "for %d ms: check that all ranks of that group create it",
                                  config->members[rank], config->timeout_ms);
    return DIST_OK;
}

/* One round. comm_creating is held afterwards if all have agreed. */
static dist_status comm_vote_round(const struct dist_backend_config *config, bool late,
                                   uint8_t *votes, MPI_Comm *base_p, bool *agreed_p)
{
    uint8_t mine = (uint8_t)comm_vote(config, late, base_p);
    dist_status status = config->all_gather(config->all_gather_arg, &mine, votes, sizeof(mine));
    bool agreed = status == DIST_OK;

    for (int r = 0; r < config->world_size && status == DIST_OK; r++) {
        agreed = agreed && votes[r] == COMM_READY;
        status = comm_refused(config, r, (enum comm_vote)votes[r]);
    }
    if (mine == COMM_READY && !agreed)
        pthread_mutex_unlock(&comm_creating);
    if (status == DIST_OK)
        *agreed_p = agreed;
    return status;
}

/* Returns once all members hold comm_creating. Groups nap differently, so that one gets ahead. */
static dist_status comm_agree(const struct dist_backend_config *config, MPI_Comm *base_p)
{
    int64_t nap_ns = (1 + config->group % 7) * INT64_C(1000000) * COMM_NAP_MS;
    uint8_t *votes = malloc((size_t)config->world_size);
    int64_t deadline = disti_deadline_ms(config->timeout_ms);
    dist_status status = DIST_OK;
    bool agreed = false;

    if (!votes)
        return config->host->fail(DIST_ERR_NO_MEMORY, "no memory for a communicator");
    while (status == DIST_OK && !agreed) {
        bool late = disti_expired(deadline);

        status = comm_vote_round(config, late, votes, base_p, &agreed);
        if (status == DIST_OK && !agreed)
            disti_sleep_ns(nap_ns);
    }
    free(votes);
    return status;
}

static int comm_create(const struct dist_backend_config *config, MPI_Comm base, MPI_Comm *comm_p)
{
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
    return code;
}

static dist_status comm_of_members(const struct dist_backend_config *config, MPI_Comm *comm_p)
{
    MPI_Comm base = MPI_COMM_NULL;
    dist_status status = comm_agree(config, &base);

    if (status != DIST_OK)
        return status;
    if (disti_mpi_lock()) {
        int code = comm_create(config, base, comm_p);

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
