/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: the communicators that are served, each with a group of its own. */
#include "preload/serve.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* The group is an attribute of its communicator; a duplicate does not inherit it. */
static int comms_key = MPI_KEYVAL_INVALID;
static struct disti_comm *comms_made;
static pthread_mutex_t comms_lock = PTHREAD_MUTEX_INITIALIZER;

/* One group at a time is made by a leader: see comms_make. */
static pthread_mutex_t comms_leading = PTHREAD_MUTEX_INITIALIZER;

struct disti_comm *disti_comm_find(MPI_Comm comm)
{
    struct disti_comm *found = NULL;
    int there = 0;

    if (comms_key == MPI_KEYVAL_INVALID ||
        PMPI_Comm_get_attr(comm, comms_key, &found, &there) != MPI_SUCCESS)
        return NULL;
    return there ? found : NULL;
}

/* ---- agreement ---- */

static void comms_wait(MPI_Request *request)
{
    struct disti_pause pause = {0};
    int done = 0;

    while (PMPI_Test(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done) {
        disti_move();
        disti_pause(&pause);
    }
}

int disti_comm_least(MPI_Comm comm, int value)
{
    MPI_Request request;
    int least = value;

    if (PMPI_Iallreduce(&value, &least, 1, MPI_INT, MPI_MIN, comm, &request) == MPI_SUCCESS)
        comms_wait(&request);
    return least;
}

bool disti_comm_needs_us(MPI_Comm comm)
{
    return disti_preload.active && !disti_preload.background && comm != MPI_COMM_NULL &&
           disti_comm_find(comm);
}

void disti_comm_meet(MPI_Comm comm)
{
    MPI_Request request;

    if (disti_comm_needs_us(comm) && PMPI_Ibarrier(comm, &request) == MPI_SUCCESS)
        comms_wait(&request);
}

/* ---- making groups ---- */

/* The group's ranks in MPI_COMM_WORLD; NULL: no memory. */
static int *comms_members(MPI_Group group, MPI_Group world, int size)
{
    int *own = malloc((size_t)size * sizeof(*own)), *members = malloc((size_t)size * sizeof(int));
    bool good = own && members;

    for (int r = 0; good && r < size; r++)
        own[r] = r;
    good = good && PMPI_Group_translate_ranks(group, size, own, world, members) == MPI_SUCCESS;
    free(own);
    if (good)
        return members;
    free(members);
    return NULL;
}

static void comms_add(struct disti_comm *made)
{
    made->rank = dist_get_rank(made->group);
    made->ranks = dist_get_world_size(made->group);
    pthread_mutex_lock(&comms_lock);
    made->next_made = comms_made;
    comms_made = made;
    pthread_mutex_unlock(&comms_lock);
}

/* The group and its attribute: on all ranks or on none. */
static void comms_make(MPI_Comm comm, const int *members, int size)
{
    struct disti_comm *made = calloc(1, sizeof(*made));
    struct dist_group_options options = DIST_GROUP_OPTIONS_INIT;
    bool good;

    options.timeout_ms = disti_preload.timeout_ms;
    good = made &&
           dist_new_group(disti_preload.world, members, size, &options, &made->group) == DIST_OK;
    if (good)
        made->comm = comm;
    else
        fprintf(stderr, "libdist: a communicator of %d ranks is left to MPI: %s\n", size,
                made ? dist_last_error() : "no memory");
    good = good && PMPI_Comm_set_attr(comm, comms_key, made) == MPI_SUCCESS;
    if (disti_comm_least(comm, good)) {
        comms_add(made);
        return;
    }
    if (good) /* but not elsewhere: the group is left to the end */
        PMPI_Comm_delete_attr(comm, comms_key);
    free(made);
}

/*
 * libdist tells groups of the same ranks apart by the order in which they are made, and threads may
 * make communicators at the same time, in another order on each rank. So the member that is first
 * in MPI_COMM_WORLD leads: it makes one at a time, and the others begin when it says so. Only
 * leaders hold the lock, and what they wait for needs no lock.
 */
static void comms_make_in_turn(MPI_Comm comm, const int *members, int size)
{
    int leader = 0, rank, go = 1;
    MPI_Request request;

    PMPI_Comm_rank(comm, &rank);
    for (int r = 1; r < size; r++)
        leader = members[r] < members[leader] ? r : leader;
    if (rank == leader)
        pthread_mutex_lock(&comms_leading);
    if (PMPI_Ibcast(&go, 1, MPI_INT, leader, comm, &request) == MPI_SUCCESS)
        comms_wait(&request);
    comms_make(comm, members, size);
    if (rank == leader)
        pthread_mutex_unlock(&comms_leading);
}

/* Processes that were spawned, or joined from another job, are not in our world. */
static bool comms_is_ours(MPI_Group group, MPI_Group world)
{
    MPI_Group others;
    bool ours;

    if (PMPI_Group_difference(group, world, &others) != MPI_SUCCESS)
        return false;
    ours = others == MPI_GROUP_EMPTY;
    if (!ours)
        PMPI_Group_free(&others);
    return ours;
}

void disti_comm_adopt(MPI_Comm comm)
{
    MPI_Group group, world;
    int is_inter = 1, size, *members;

    if (!disti_preload.active || comm == MPI_COMM_NULL ||
        PMPI_Comm_test_inter(comm, &is_inter) != MPI_SUCCESS || is_inter)
        return;
    PMPI_Comm_size(comm, &size);
    PMPI_Comm_group(comm, &group);
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    if (comms_is_ours(group, world)) {
        members = comms_members(group, world, size);
        if (disti_comm_least(comm, members != NULL))
            comms_make_in_turn(comm, members, size);
        free(members);
    }
    PMPI_Group_free(&group);
    PMPI_Group_free(&world);
}

/* ---- ending them ---- */

static void comms_unlink(struct disti_comm *comm)
{
    struct disti_comm **at = &comms_made;

    pthread_mutex_lock(&comms_lock);
    while (*at && *at != comm)
        at = &(*at)->next_made;
    if (*at)
        *at = comm->next_made;
    pthread_mutex_unlock(&comms_lock);
}

void disti_comm_release(MPI_Comm comm)
{
    struct disti_comm *found =
        disti_preload.active && comm != MPI_COMM_NULL ? disti_comm_find(comm) : NULL;
    struct disti_pause pause = {0};

    if (!found)
        return;
    while (disti_pending_any(found)) {
        disti_move();
        disti_poll_mpi();
        disti_pause(&pause);
    }
    PMPI_Comm_delete_attr(comm, comms_key);
    if (disti_comm_least(comm, found->persistents == 0)) {
        dist_destroy_process_group(found->group);
        comms_unlink(found);
        free(found);
    } else {
        found->comm = MPI_COMM_WORLD; /* persistent operations outlive it: the group ends last */
    }
}

bool disti_comms_open(void)
{
    return PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &comms_key,
                                   NULL) == MPI_SUCCESS;
}

void disti_comms_close(void)
{
    while (comms_made) {
        struct disti_comm *comm = comms_made;

        comms_made = comm->next_made;
        free(comm);
    }
    if (comms_key != MPI_KEYVAL_INVALID)
        PMPI_Comm_free_keyval(&comms_key);
}

int disti_comm_fail(MPI_Comm comm)
{
    fprintf(stderr, "libdist: %s\n", dist_last_error());
    PMPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
    return MPI_ERR_OTHER;
}
