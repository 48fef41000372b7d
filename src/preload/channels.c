/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: the groups in which calls are served, lent to communicators one after another. */
#include "preload/serve.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/*
 * To give a channel back is a matter of this rank alone: the group stays. It serves the next
 * communicator of the same ranks, once every rank has given it back; that is what they agree on
 * when they take one. So a program has as many groups as it uses communicators side by side, and
 * no group is ended before MPI_Finalize.
 *
 *    list of ranks 0 2 4      slots   0    1    2    3 ... 63
 *                             rank 0  idle lent idle free
 *                             rank 2  idle lent lent free      all: 0 is idle, 3 is free
 *                             rank 4  idle lent idle free
 */
#define CHANNELS_SLOTS 64

/* Groups of a process: no more are made, so what they cost in all is bounded. */
#define CHANNELS_MOST 128

/* Descriptors that a group may take, and one for each of its ranks. The program keeps a quarter. */
#define CHANNELS_FDS 16

/* All groups that were made of one list of ranks. `lock` guards the bits. */
struct channels_list {
    struct channels_list *next;
    int *members; /* in MPI_COMM_WORLD */
    int size;
    uint64_t idle, free;
    struct disti_channel *slots[CHANNELS_SLOTS];
};

static pthread_mutex_t channels_lock = PTHREAD_MUTEX_INITIALIZER;
static struct channels_list *channels_lists;
static atomic_int channels_made;

/* Channels are taken by turns: see channels_turn. */
static pthread_mutex_t channels_leading = PTHREAD_MUTEX_INITIALIZER;

/* ---- lists ---- */

/* The communicator's ranks in MPI_COMM_WORLD; NULL: no memory. */
static int *channels_members(const struct disti_comm *comm)
{
    size_t bytes = (size_t)comm->ranks * sizeof(int);
    int *own = malloc(bytes), *members = malloc(bytes);
    MPI_Group group, world;
    bool good = own && members;

    for (int r = 0; good && r < comm->ranks; r++)
        own[r] = r;
    PMPI_Comm_group(comm->comm, &group);
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    good =
        good && PMPI_Group_translate_ranks(group, comm->ranks, own, world, members) == MPI_SUCCESS;
    PMPI_Group_free(&group);
    PMPI_Group_free(&world);
    free(own);
    if (good)
        return members;
    free(members);
    return NULL;
}

static struct channels_list *channels_new_list(int *members, int size)
{
    struct channels_list *list = calloc(1, sizeof(*list));

    if (!list)
        return NULL;
    list->members = members;
    list->size = size;
    list->free = UINT64_MAX;
    list->next = channels_lists;
    channels_lists = list;
    return list;
}

/* NULL: no memory. */
static struct channels_list *channels_find_list(const struct disti_comm *comm)
{
    int *members = channels_members(comm);
    struct channels_list *list;

    if (!members)
        return NULL;
    pthread_mutex_lock(&channels_lock);
    list = channels_lists;
    while (list && (list->size != comm->ranks ||
                    memcmp(list->members, members, (size_t)list->size * sizeof(int)) != 0))
        list = list->next;
    if (!list)
        list = channels_new_list(members, comm->ranks);
    pthread_mutex_unlock(&channels_lock);
    if (!list || list->members != members)
        free(members);
    return list;
}

/* ---- making one ---- */

/* Would a group leave the program enough descriptors? The lowest free one says how many are in use.
 */
static bool channels_have_room(const struct disti_comm *comm)
{
    struct rlimit limit;
    int fd;

    if (atomic_load(&channels_made) >= CHANNELS_MOST || getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return false;
    fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    close(fd);
    return (rlim_t)fd + CHANNELS_FDS + (rlim_t)comm->ranks < limit.rlim_cur / 4 * 3;
}

static void channels_warn(const struct disti_comm *comm, const char *why)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;

    if (!atomic_flag_test_and_set(&warned))
        fprintf(stderr, "libdist: rank %d: MPI keeps a communicator of %d ranks: %s\n",
                disti_preload.rank, comm->ranks, why);
}

/* Puts a group into `made`, on all ranks or on none. Whatever comes of it, the slot is used up. */
static bool channels_make(const struct disti_comm *comm, struct channels_list *list, int slot,
                          struct disti_channel *made)
{
    struct dist_group_options options = DIST_GROUP_OPTIONS_INIT;
    bool good;

    options.timeout_ms = disti_preload.timeout_ms;
    options.meanwhile = disti_poll_mpi; /* a peer may wait for a message before it comes */
    good = dist_new_group(disti_preload.world, list->members, list->size, &options, &made->group) ==
           DIST_OK;
    if (!good)
        channels_warn(comm, dist_last_error());
    pthread_mutex_lock(&channels_lock);
    list->free &= ~(UINT64_C(1) << slot);
    pthread_mutex_unlock(&channels_lock);
    if (!disti_comm_least(comm->comm, good))
        return false; /* a group that was made in vain is left to the end */
    atomic_fetch_add(&channels_made, 1);
    made->list = list;
    made->slot = slot;
    list->slots[slot] = made;
    return true;
}

/* ---- taking one ---- */

/* What all ranks have: slots that are idle, and slots that are free. */
static void channels_agree(const struct disti_comm *comm, struct channels_list *list, bool room,
                           uint64_t *idle_p, uint64_t *free_p)
{
    uint64_t mine[2] = {0}, all[2] = {0};

    if (list) {
        pthread_mutex_lock(&channels_lock);
        mine[0] = list->idle;
        mine[1] = room ? list->free : 0;
        pthread_mutex_unlock(&channels_lock);
    }
    (void)disti_comm_agree(comm->comm, mine, all, 2, MPI_UINT64_T, MPI_BAND);
    *idle_p = all[0];
    *free_p = all[1];
}

static struct disti_channel *channels_pick(struct disti_comm *comm, struct channels_list *list)
{
    struct disti_channel *made = calloc(1, sizeof(*made));
    uint64_t idle, free_slots;
    int slot;

    channels_agree(comm, list, made && channels_have_room(comm), &idle, &free_slots);
    if (!idle) {
        if (free_slots && channels_make(comm, list, __builtin_ctzll(free_slots), made))
            return made;
        free(made);
        return NULL;
    }
    free(made);
    slot = __builtin_ctzll(idle);
    pthread_mutex_lock(&channels_lock);
    list->idle &= ~(UINT64_C(1) << slot);
    pthread_mutex_unlock(&channels_lock);
    return list->slots[slot];
}

/*
 * Threads may take channels of one list at the same time, in another order on each rank. So the
 * member that is first in MPI_COMM_WORLD leads: when all have come it takes one at a time, and the
 * others begin when it says so. Only leaders hold the lock, and what they wait for needs no lock.
 */
static struct disti_channel *channels_turn(struct disti_comm *comm, struct channels_list *list)
{
    int leader = disti_comm_least(comm->comm, disti_preload.rank);
    struct disti_channel *channel;

    if (disti_preload.rank == leader)
        pthread_mutex_lock(&channels_leading);
    disti_comm_least(comm->comm, 0); /* it ends once the leader has begun */
    channel = channels_pick(comm, list);
    if (disti_preload.rank == leader)
        pthread_mutex_unlock(&channels_leading);
    return channel;
}

struct disti_channel *disti_channel_take(struct disti_comm *comm)
{
    struct channels_list *list;

    if (comm->foreign)
        return NULL;
    list = channels_find_list(comm);
    return disti_preload.turns ? channels_turn(comm, list) : channels_pick(comm, list);
}

void disti_channel_give(struct disti_channel *channel)
{
    struct channels_list *list = channel->list;

    pthread_mutex_lock(&channels_lock);
    if (!channel->broken)
        list->idle |= UINT64_C(1) << channel->slot;
    pthread_mutex_unlock(&channels_lock);
}

void disti_channels_close(void)
{
    while (channels_lists) {
        struct channels_list *list = channels_lists;

        channels_lists = list->next;
        for (int slot = 0; slot < CHANNELS_SLOTS; slot++)
            free(list->slots[slot]);
        free(list->members);
        free(list);
    }
}
