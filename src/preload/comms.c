/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: communicators, and which of their calls are served. */
#include "base/backoff.h"
#include "preload/serve.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * To make a group is dear: a communicator gets one at its first served call, not when it is made,
 * and programs that make communicators in a loop get none for most. How many are served from their
 * first call on is settled by a credit that MPI_COMM_WORLD begins with. A communicator passes a
 * share of what it has on to each that is made of it, so all ranks of the new one know its share
 * without asking. All others are served once they have seen some calls.
 */
#define COMMS_CREDIT 16
#define COMMS_CALLS 32

/* Our record is an attribute of its communicator; a duplicate does not inherit it. */
static int comms_key = MPI_KEYVAL_INVALID;
static atomic_uint comms_gone; /* how many handles have lost their records */

/* What this thread looked up last: to ask MPI takes longer than a short call. Good as long as no
 * record has gone, since handles are used again. */
static DISTI_THREAD_LOCAL struct {
    MPI_Comm handle;
    struct disti_comm *record;
    unsigned gone;
} comms_last;

static pthread_mutex_t comms_lock = PTHREAD_MUTEX_INITIALIZER;
static struct disti_comm *comms_made;

/* ---- agreement ---- */

/*
 * The blocking call: Open MPI's progress, which every test of the program's runs through, asks its
 * nonblocking collectives too from the first one on, for good. What is under way in libdist is
 * moved by its thread meanwhile.
 */
bool disti_comm_agree(MPI_Comm comm, const void *mine, void *all, int count, MPI_Datatype type,
                      MPI_Op op)
{
    return PMPI_Allreduce(mine, all, count, type, op, comm) == MPI_SUCCESS;
}

int disti_comm_least(MPI_Comm comm, int value)
{
    int least;

    return disti_comm_agree(comm, &value, &least, 1, MPI_INT, MPI_MIN) ? least : value;
}

/* ---- the records ---- */

/* Intercommunicators, and processes that were spawned or joined, are none of ours. */
static bool comms_is_foreign(MPI_Comm comm)
{
    MPI_Group group, world, others;
    int is_inter = 1;
    bool foreign = true;

    if (PMPI_Comm_test_inter(comm, &is_inter) != MPI_SUCCESS || is_inter)
        return true;
    PMPI_Comm_group(comm, &group);
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    if (PMPI_Group_difference(group, world, &others) == MPI_SUCCESS) {
        foreign = others != MPI_GROUP_EMPTY;
        if (foreign)
            PMPI_Group_free(&others);
    }
    PMPI_Group_free(&group);
    PMPI_Group_free(&world);
    return foreign;
}

static void comms_insert(struct disti_comm *comm)
{
    pthread_mutex_lock(&comms_lock);
    comm->next_made = comms_made;
    comm->entry = &comms_made;
    if (comms_made)
        comms_made->entry = &comm->next_made;
    comms_made = comm;
    pthread_mutex_unlock(&comms_lock);
}

static void comms_remove(struct disti_comm *comm)
{
    pthread_mutex_lock(&comms_lock);
    *comm->entry = comm->next_made;
    if (comm->next_made)
        comm->next_made->entry = comm->entry;
    pthread_mutex_unlock(&comms_lock);
}

/* NULL: no memory. */
static struct disti_comm *comms_attach(MPI_Comm comm, bool foreign, int share)
{
    struct disti_comm *made = calloc(1, sizeof(*made));

    if (made) {
        made->comm = comm;
        made->foreign = foreign;
        made->early = share > 0;
        made->credit = share > 0 ? share - 1 : 0;
        atomic_store(&made->users, 1);
        PMPI_Comm_rank(comm, &made->rank);
        PMPI_Comm_size(comm, &made->ranks);
    }
    if (!made || PMPI_Comm_set_attr(comm, comms_key, made) != MPI_SUCCESS) {
        fprintf(stderr, "libdist: rank %d: no memory for a communicator\n", disti_preload.rank);
        free(made);
        return NULL;
    }
    comms_insert(made);
    return made;
}

/* MPI calls it however a communicator is freed. */
static int comms_forget(MPI_Comm comm, int key, void *record, void *extra)
{
    (void)comm;
    (void)key;
    (void)record;
    (void)extra;
    atomic_fetch_add(&comms_gone, 1);
    return MPI_SUCCESS;
}

static struct disti_comm *comms_ask(MPI_Comm comm)
{
    struct disti_comm *found = NULL;
    int there = 0;

    if (comms_key == MPI_KEYVAL_INVALID ||
        PMPI_Comm_get_attr(comm, comms_key, &found, &there) != MPI_SUCCESS)
        return NULL;
    return there ? found : comms_attach(comm, comms_is_foreign(comm), 0);
}

unsigned disti_comms_gone(void)
{
    return atomic_load_explicit(&comms_gone, memory_order_acquire);
}

struct disti_comm *disti_comm_find(MPI_Comm comm)
{
    unsigned gone = disti_comms_gone();

    if (comms_last.handle == comm && comms_last.record && comms_last.gone == gone)
        return comms_last.record;
    comms_last.record = comms_ask(comm);
    comms_last.handle = comm;
    comms_last.gone = gone;
    return comms_last.record;
}

void disti_comm_adopt(MPI_Comm parent, MPI_Comm comm)
{
    struct disti_comm *from = disti_preload.active ? disti_comm_find(parent) : NULL;
    int share = 0;

    if (!from || from->foreign)
        return;
    if (from->credit > 0) {
        share = 1 + (from->credit - 1) / 4;
        from->credit -= share;
    }
    if (comm != MPI_COMM_NULL)
        comms_attach(comm, false, share);
}

/* The ranks spent different amounts before: the least that one has left decides. */
void disti_comm_adopt_apart(MPI_Comm comm)
{
    static atomic_int credit = COMMS_CREDIT;
    int share;

    if (!disti_preload.active || comm == MPI_COMM_NULL || comms_is_foreign(comm))
        return;
    share = disti_comm_least(comm, atomic_load(&credit) > 0);
    if (share)
        atomic_fetch_sub(&credit, 1);
    comms_attach(comm, false, share);
}

void disti_comm_hold(struct disti_comm *comm)
{
    atomic_fetch_add(&comm->users, 1);
}

void disti_comm_let_go(struct disti_comm *comm)
{
    if (atomic_fetch_sub(&comm->users, 1) > 1)
        return;
    comms_remove(comm);
    if (comm->channel)
        disti_channel_give(comm->channel);
    free(comm);
}

/* Of a communicator that may be freed; NULL: there is none. */
static struct disti_comm *comms_record(MPI_Comm comm)
{
    struct disti_comm *found = NULL;
    int there = 0;

    if (!disti_preload.active || comm == MPI_COMM_NULL || comm == MPI_COMM_WORLD ||
        comm == MPI_COMM_SELF ||
        PMPI_Comm_get_attr(comm, comms_key, &found, &there) != MPI_SUCCESS || !there)
        return NULL;
    return found;
}

void disti_comm_finish(MPI_Comm comm)
{
    const struct disti_comm *found = comms_record(comm);
    struct disti_backoff backoff = {0};

    while (found && found->channel && disti_pending_any(found->channel)) {
        disti_move();
        disti_poll_mpi(NULL);
        disti_backoff(&backoff);
    }
}

void disti_comm_release(MPI_Comm comm)
{
    struct disti_comm *found = comms_record(comm);

    if (!found)
        return;
    PMPI_Comm_delete_attr(comm, comms_key);
    found->comm = MPI_COMM_WORLD; /* operations may outlive the program's handle */
    disti_comm_let_go(found);
}

/* ---- which calls are served ---- */

/* The ranks of a communicator begin its collectives in one order, so they count alike. */
static bool comms_is_due(const struct disti_comm *comm)
{
    return comm->early || comm->calls > COMMS_CALLS;
}

/*
 * Making a group waits for the other ranks, which a nonblocking call must not: then MPI does it,
 * as long as the communicator has no group.
 */
struct disti_channel *disti_comm_channel(struct disti_comm *comm, enum disti_form form)
{
    if (form == DISTI_PERSISTENT)
        return comms_is_due(comm) ? disti_channel_take(comm) : NULL;
    if (comm->channel || comm->left)
        return comm->channel;
    if (!comms_is_due(comm) || (form == DISTI_NONBLOCKING && comm->ranks > 1))
        return NULL;
    comm->channel = disti_channel_take(comm);
    comm->left = !comm->channel;
    return comm->channel;
}

/* ---- the beginning and the end ---- */

bool disti_comms_open(void)
{
    return PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, comms_forget, &comms_key, NULL) ==
           MPI_SUCCESS;
}

void disti_comms_start(void)
{
    struct disti_comm *world = comms_attach(MPI_COMM_WORLD, false, 1 + COMMS_CREDIT);

    comms_attach(MPI_COMM_SELF, false, 1 + COMMS_CREDIT);
    if (world)
        disti_comm_channel(world, DISTI_BLOCKING);
}

void disti_comms_close(void)
{
    atomic_fetch_add(&comms_gone, 1);
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
