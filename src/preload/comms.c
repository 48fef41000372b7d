/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: communicators, and which of their calls are served. */
#include "base/backoff.h"
#include "preload/preload.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/*
 * Making a group is expensive: a communicator gets one at its first served call, not when it is
 * made, so programs that make communicators in a loop get none for most of them. A credit that
 * starts at MPI_COMM_WORLD decides which communicators are served from their first call on. A
 * communicator passes a share of its credit on to each communicator made from it; so all ranks of
 * the new one can compute its credit without communication. All other communicators are served
 * after COMMS_CALLS calls.
 */
#define COMMS_CREDIT 16
#define COMMS_CALLS 32

/* The record is an attribute of its communicator; a duplicate does not inherit it. */
static int comms_key = MPI_KEYVAL_INVALID;
static atomic_uint comms_freed; /* number of freed communicators */

/*
 * The last lookup of this thread: MPI's lookup takes longer than a short call. It is valid only
 * while no communicator is freed, since MPI reuses handles.
 */
static DISTI_THREAD_LOCAL struct {
    MPI_Comm handle;
    struct disti_comm *record;
    unsigned freed;
} comms_last;

static pthread_mutex_t comms_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, disti_comm) comms_records = LIST_HEAD_INITIALIZER(comms_records);

/* ---- agreement ---- */

/*
 * MPI_Allreduce. False: MPI has failed. Collective. It blocks, since after the first nonblocking
 * collective of a program Open MPI's progress function polls its nonblocking collectives in every
 * test, for good. libdist's thread makes progress on libdist's operations meanwhile.
 */
static bool comm_agree(MPI_Comm comm, const void *mine, void *all, int count, MPI_Datatype type,
                       MPI_Op op)
{
    return PMPI_Allreduce(mine, all, count, type, op, comm) == MPI_SUCCESS;
}

int disti_comm_min(MPI_Comm comm, int value)
{
    int least;

    return comm_agree(comm, &value, &least, 1, MPI_INT, MPI_MIN) ? least : value;
}

/* ---- records ---- */

/* True for intercommunicators, and for communicators with spawned or connected processes. */
static bool comms_is_foreign(MPI_Comm comm)
{
    MPI_Group group, world, outside;
    int is_inter = 1;
    bool foreign = true;

    if (PMPI_Comm_test_inter(comm, &is_inter) != MPI_SUCCESS || is_inter)
        return true;
    PMPI_Comm_group(comm, &group);
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    if (PMPI_Group_difference(group, world, &outside) == MPI_SUCCESS) {
        foreign = outside != MPI_GROUP_EMPTY;
        if (foreign)
            PMPI_Group_free(&outside);
    }
    PMPI_Group_free(&group);
    PMPI_Group_free(&world);
    return foreign;
}

/* Creates a record. NULL: out of memory. */
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
        fprintf(stderr, "libdist: rank %d: out of memory for a communicator\n", disti_preload.rank);
        free(made);
        return NULL;
    }
    pthread_mutex_lock(&comms_lock);
    LIST_INSERT_HEAD(&comms_records, made, entry);
    pthread_mutex_unlock(&comms_lock);
    return made;
}

/* Attribute callback: MPI calls it whenever a communicator is freed. */
static int comms_forget(MPI_Comm comm, int key, void *record, void *extra)
{
    (void)comm;
    (void)key;
    (void)record;
    (void)extra;
    atomic_fetch_add(&comms_freed, 1);
    return MPI_SUCCESS;
}

unsigned disti_comms_freed(void)
{
    return atomic_load_explicit(&comms_freed, memory_order_acquire);
}

struct disti_comm *disti_comm_find(MPI_Comm comm)
{
    unsigned freed = disti_comms_freed();
    struct disti_comm *found = NULL;
    int there = 0;

    if (comms_last.handle == comm && comms_last.record && comms_last.freed == freed)
        return comms_last.record;
    if (comms_key == MPI_KEYVAL_INVALID ||
        PMPI_Comm_get_attr(comm, comms_key, &found, &there) != MPI_SUCCESS)
        comms_last.record = NULL;
    else
        comms_last.record = there ? found : comms_attach(comm, comms_is_foreign(comm), 0);
    comms_last.handle = comm;
    comms_last.freed = freed;
    return comms_last.record;
}

/*
 * Creates the record of a communicator that was made by a collective call over `parent`. comm may
 * be MPI_COMM_NULL.
 */
static void comm_adopt(MPI_Comm parent, MPI_Comm comm)
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

/*
 * Creates the record of a communicator that was made by a call over its own ranks only. The ranks
 * have spent different amounts of the credit for such communicators, so the minimum decides.
 * Collective over comm; blocks. comm may be MPI_COMM_NULL.
 */
static void comm_adopt_by_members(MPI_Comm comm)
{
    static atomic_int credit = COMMS_CREDIT;
    int share;

    if (!disti_preload.active || comm == MPI_COMM_NULL || comms_is_foreign(comm))
        return;
    share = disti_comm_min(comm, atomic_load(&credit) > 0);
    if (share)
        atomic_fetch_sub(&credit, 1);
    comms_attach(comm, false, share);
}

void disti_comm_ref(struct disti_comm *comm)
{
    atomic_fetch_add(&comm->users, 1);
}

void disti_comm_unref(struct disti_comm *comm)
{
    if (atomic_fetch_sub(&comm->users, 1) > 1)
        return;
    pthread_mutex_lock(&comms_lock);
    LIST_REMOVE(comm, entry);
    pthread_mutex_unlock(&comms_lock);
    if (comm->channel)
        disti_channel_return(comm->channel);
    free(comm);
}

/* Returns the record of a communicator that the program may free; NULL: none. */
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

/*
 * Drops the program's reference, before the program frees the communicator. Local; does not block.
 */
static void comm_release(MPI_Comm comm)
{
    struct disti_comm *found = comms_record(comm);

    if (!found)
        return;
    PMPI_Comm_delete_attr(comm, comms_key);
    found->comm = MPI_COMM_WORLD; /* operations may outlive the program's handle */
    disti_comm_unref(found);
}

/* ---- start and end ---- */

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

int disti_comm_fail(MPI_Comm comm)
{
    fprintf(stderr, "libdist: %s\n", dist_last_error());
    PMPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
    return MPI_ERR_OTHER;
}

/* Preload: the calls that make and free communicators. */

/*
 * X(name, parameters, arguments) for the functions that are collective over comm and make newcomm
 * from it.
 */
#define CREATORS(X)                                                                                \
    X(Comm_dup, (MPI_Comm comm, MPI_Comm * newcomm), (comm, newcomm))                              \
    X(Comm_dup_with_info, (MPI_Comm comm, MPI_Info info, MPI_Comm * newcomm),                      \
      (comm, info, newcomm))                                                                       \
    X(Comm_split, (MPI_Comm comm, int color, int key, MPI_Comm *newcomm),                          \
      (comm, color, key, newcomm))                                                                 \
    X(Comm_split_type, (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *newcomm),       \
      (comm, type, key, info, newcomm))                                                            \
    X(Comm_create, (MPI_Comm comm, MPI_Group group, MPI_Comm * newcomm), (comm, group, newcomm))   \
    X(Cart_create,                                                                                 \
      (MPI_Comm comm, int dimensions, const int sizes[], const int periods[], int reorder,         \
       MPI_Comm *newcomm),                                                                         \
      (comm, dimensions, sizes, periods, reorder, newcomm))                                        \
    X(Cart_sub, (MPI_Comm comm, const int remain[], MPI_Comm *newcomm), (comm, remain, newcomm))   \
    X(Graph_create,                                                                                \
      (MPI_Comm comm, int nodes, const int index[], const int edges[], int reorder,                \
       MPI_Comm *newcomm),                                                                         \
      (comm, nodes, index, edges, reorder, newcomm))                                               \
    X(Dist_graph_create,                                                                           \
      (MPI_Comm comm, int nodes, const int sources[], const int degrees[],                         \
       const int destinations[], const int weights[], MPI_Info info, int reorder,                  \
       MPI_Comm *newcomm),                                                                         \
      (comm, nodes, sources, degrees, destinations, weights, info, reorder, newcomm))              \
    X(Dist_graph_create_adjacent,                                                                  \
      (MPI_Comm comm, int indegree, const int sources[], const int sourceweights[], int outdegree, \
       const int destinations[], const int destweights[], MPI_Info info, int reorder,              \
       MPI_Comm *newcomm),                                                                         \
      (comm, indegree, sources, sourceweights, outdegree, destinations, destweights, info,         \
       reorder, newcomm))

/* X(name, parameters, arguments) for functions that are collective over newcomm's ranks only. */
#define CREATORS_BY_MEMBERS(X)                                                                     \
    X(Comm_create_group, (MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *newcomm),             \
      (comm, group, tag, newcomm))                                                                 \
    X(Intercomm_merge, (MPI_Comm comm, int high, MPI_Comm *newcomm), (comm, high, newcomm))

#define CREATORS_UNWRAP(...) __VA_ARGS__
#define CREATORS_DEFINE_AS(name, parameters, arguments, adopt)                                     \
    int MPI_##name(CREATORS_UNWRAP parameters)                                                     \
    {                                                                                              \
        int code = PMPI_##name arguments;                                                          \
                                                                                                   \
        if (code == MPI_SUCCESS)                                                                   \
            adopt;                                                                                 \
        return code;                                                                               \
    }
#define CREATORS_DEFINE(name, parameters, arguments)                                               \
    CREATORS_DEFINE_AS(name, parameters, arguments, comm_adopt(comm, *newcomm))
#define CREATORS_DEFINE_BY_MEMBERS(name, parameters, arguments)                                    \
    CREATORS_DEFINE_AS(name, parameters, arguments, comm_adopt_by_members(*newcomm))
CREATORS(CREATORS_DEFINE)
CREATORS_BY_MEMBERS(CREATORS_DEFINE_BY_MEMBERS)

/* MPI reports a NULL argument. */
int MPI_Comm_free(MPI_Comm *comm)
{
    if (comm)
        comm_release(*comm);
    return PMPI_Comm_free(comm);
}

/* Unlike MPI_Comm_free, waits for operations and for the other ranks. */
int MPI_Comm_disconnect(MPI_Comm *comm)
{
    if (comm) {
        const struct disti_comm *found = comms_record(*comm);
        struct disti_backoff backoff = {0};

        /* Waits for the operations on this communicator. */
        while (found && found->channel && disti_pending_any(found->channel)) {
            disti_progress();
            disti_poll_mpi(NULL);
            disti_backoff(&backoff);
        }
        comm_release(*comm);
    }
    return PMPI_Comm_disconnect(comm);
}

/* Preload: channels, the groups that run calls. Communicators use them one after another. */

/*
 * Returning a channel is local to this rank: the group stays. It can run calls of the next
 * communicator with the same ranks after every rank has returned it; the ranks agree on that when
 * they acquire a channel. So a program has as many groups as it uses communicators at a time, and
 * no group is destroyed before MPI_Finalize.
 *
 *    list of ranks 0 2 4      slots   0    1    2    3 ... 63
 *                             rank 0  idle used idle free
 *                             rank 2  idle used used free      all: 0 is idle, 3 is free
 *                             rank 4  idle used idle free
 */
#define CHANNELS_SLOTS 64

/* Maximum number of groups of a process, which bounds their memory and descriptors. */
#define CHANNELS_MOST 128

/*
 * Descriptors that a group may need, in addition to one per rank. A quarter of the limit is left to
 * the program.
 */
#define CHANNELS_FDS 16

/* All groups with the same ranks. channels_lock protects the bits. */
struct channels_list {
    SLIST_ENTRY(channels_list) next;
    int *members; /* ranks in MPI_COMM_WORLD */
    int size;
    uint64_t idle, free;
    struct disti_channel *slots[CHANNELS_SLOTS];
};

static pthread_mutex_t channels_lock = PTHREAD_MUTEX_INITIALIZER;
static SLIST_HEAD(, channels_list) channels_lists = SLIST_HEAD_INITIALIZER(channels_lists);
static atomic_int channels_count;

/* Threads acquire channels one at a time: see channel_acquire. */
static pthread_mutex_t channels_turn = PTHREAD_MUTEX_INITIALIZER;

/* ---- lists ---- */

/*
 * Returns the list of a communicator's ranks in MPI_COMM_WORLD; creates it if needed. NULL: out of
 * memory.
 */
static struct channels_list *channels_find_list(const struct disti_comm *comm)
{
    size_t bytes = (size_t)comm->ranks * sizeof(int);
    int *own = malloc(bytes), *members = malloc(bytes);
    struct channels_list *list = NULL;
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
    if (good) {
        pthread_mutex_lock(&channels_lock);
        SLIST_FOREACH(list, &channels_lists, next)
        {
            if (list->size == comm->ranks && memcmp(list->members, members, bytes) == 0)
                break;
        }
        if (!list && (list = calloc(1, sizeof(*list)))) {
            list->members = members;
            list->size = comm->ranks;
            list->free = UINT64_MAX;
            SLIST_INSERT_HEAD(&channels_lists, list, next);
        }
        pthread_mutex_unlock(&channels_lock);
    }
    if (!list || list->members != members)
        free(members);
    return list;
}

/* ---- making a channel ---- */

/*
 * True if the program would have enough descriptors after making a group. The lowest free
 * descriptor approximates the number in use.
 */
static bool channels_have_descriptors(const struct disti_comm *comm)
{
    struct rlimit limit;
    int fd;

    if (atomic_load(&channels_count) >= CHANNELS_MOST || getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return false;
    fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    close(fd);
    return (rlim_t)fd + CHANNELS_FDS + (rlim_t)comm->ranks < limit.rlim_cur / 4 * 3;
}

/* Makes a group for a channel, on all ranks or on none. The slot is used up even on failure. */
static bool channels_make(const struct disti_comm *comm, struct channels_list *list, int slot,
                          struct disti_channel *made)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    struct dist_group_options options = DIST_GROUP_OPTIONS_INIT;
    bool good;

    options.timeout_ms = disti_preload.timeout_ms;
    /* A peer may be waiting for an MPI message before it joins. */
    options.meanwhile = disti_poll_mpi;
    good = dist_new_group(disti_preload.world, list->members, list->size, &options, &made->group) ==
           DIST_OK;
    if (!good && !atomic_flag_test_and_set(&warned))
        fprintf(stderr, "libdist: rank %d: MPI serves a communicator of %d ranks itself: %s\n",
                disti_preload.rank, comm->ranks, dist_last_error());
    pthread_mutex_lock(&channels_lock);
    list->free &= ~(UINT64_C(1) << slot);
    pthread_mutex_unlock(&channels_lock);
    if (!disti_comm_min(comm->comm, good))
        return false; /* a group that other ranks could not make is kept until MPI_Finalize */
    atomic_fetch_add(&channels_count, 1);
    made->list = list;
    made->slot = slot;
    list->slots[slot] = made;
    return true;
}

/* ---- acquiring a channel ---- */

static struct disti_channel *channels_pick(struct disti_comm *comm, struct channels_list *list)
{
    struct disti_channel *made = calloc(1, sizeof(*made));
    bool may_make = made && channels_have_descriptors(comm);
    uint64_t mine[2] = {0}, all[2] = {0}; /* slots that are idle, and slots that are free */
    int slot;

    if (list) {
        pthread_mutex_lock(&channels_lock);
        mine[0] = list->idle;
        mine[1] = may_make ? list->free : 0;
        pthread_mutex_unlock(&channels_lock);
    }
    (void)comm_agree(comm->comm, mine, all, 2, MPI_UINT64_T, MPI_BAND);
    if (!all[0] && all[1] && channels_make(comm, list, __builtin_ctzll(all[1]), made))
        return made;
    free(made);
    if (!all[0])
        return NULL;
    slot = __builtin_ctzll(all[0]);
    pthread_mutex_lock(&channels_lock);
    list->idle &= ~(UINT64_C(1) << slot);
    pthread_mutex_unlock(&channels_lock);
    return list->slots[slot];
}

/*
 * Acquires a channel for the ranks of comm, on all of them, or returns NULL on all. Collective over
 * comm; blocks until all ranks have joined.
 *
 * Threads may acquire channels of one list concurrently, in a different order on each rank. So the
 * rank that is first in MPI_COMM_WORLD leads: after all ranks have joined it locks channels_turn,
 * and the other ranks continue once it holds the lock. Only leaders lock it, and nothing that they
 * wait for meanwhile needs it.
 */
static struct disti_channel *channel_acquire(struct disti_comm *comm)
{
    struct channels_list *list;
    struct disti_channel *channel;
    int leader;

    if (comm->foreign)
        return NULL;
    list = channels_find_list(comm);
    if (!disti_preload.is_threaded)
        return channels_pick(comm, list);
    leader = disti_comm_min(comm->comm, disti_preload.rank);
    if (disti_preload.rank == leader)
        pthread_mutex_lock(&channels_turn);
    disti_comm_min(comm->comm, 0); /* completes after the leader has begun */
    channel = channels_pick(comm, list);
    if (disti_preload.rank == leader)
        pthread_mutex_unlock(&channels_turn);
    return channel;
}

/*
 * Making a group blocks until the other ranks join, which a nonblocking call must not: such calls
 * are forwarded while the communicator has no group.
 */
struct disti_channel *disti_comm_channel(struct disti_comm *comm, enum disti_form form)
{
    /*
     * The ranks of a communicator begin its collectives in the same order, so their counts agree.
     */
    bool due = comm->early || comm->calls > COMMS_CALLS;

    if (form == DISTI_PERSISTENT)
        return due ? channel_acquire(comm) : NULL;
    if (comm->channel || comm->never_served)
        return comm->channel;
    if (!due || (form == DISTI_NONBLOCKING && comm->ranks > 1))
        return NULL;
    comm->channel = channel_acquire(comm);
    comm->never_served = !comm->channel;
    return comm->channel;
}

void disti_channel_return(struct disti_channel *channel)
{
    struct channels_list *list = channel->list;

    pthread_mutex_lock(&channels_lock);
    if (!channel->broken)
        list->idle |= UINT64_C(1) << channel->slot;
    pthread_mutex_unlock(&channels_lock);
}

void disti_comms_close(void)
{
    atomic_fetch_add(&comms_freed, 1);
    while (!LIST_EMPTY(&comms_records)) {
        struct disti_comm *comm = LIST_FIRST(&comms_records);

        LIST_REMOVE(comm, entry);
        free(comm);
    }
    if (comms_key != MPI_KEYVAL_INVALID)
        PMPI_Comm_free_keyval(&comms_key);
    while (!SLIST_EMPTY(&channels_lists)) {
        struct channels_list *list = SLIST_FIRST(&channels_lists);

        SLIST_REMOVE_HEAD(&channels_lists, next);
        for (int slot = 0; slot < CHANNELS_SLOTS; slot++)
            free(list->slots[slot]);
        free(list->members);
        free(list);
    }
}

/* Preload: comparisons, which forward calls that MPI runs faster. */

/*
 * Speed is measured in the program itself, on its ranks, by collective and size. After some served
 * calls libdist and MPI take turns of a few calls each, and the times of all ranks together decide
 * for good:
 *
 *    calls   0 ... 15   16..23   24..31   32..39   40..47   48..55   56..63   64 ...
 *            served   libdist    MPI   libdist    MPI   libdist    MPI   the faster one
 *
 * The first call of a turn is not timed, since ranks may still be busy with the other library's
 * last call. A library is faster if its longest turn is shorter than the shortest turn of the other
 * one. If ranks are late or lose their CPUs, neither is: the call is served, and the comparison is
 * repeated later. All ranks count the same calls and get the same sums, so they decide alike. Only
 * calls whose size all ranks know are compared, and whose result does not depend on the library:
 * not sums of floating-point numbers, so that two runs of a program have equal results.
 */
#define COMPARE_SERVED 16
#define COMPARE_TURN 8

/*
 * Maximum number of comparisons; each starts after 8 times as many calls as the previous one (a
 * shift by 3).
 */
#define COMPARE_TRIES 5
#define COMPARE_LATER 3

/* Required advantage in percent. */
#define COMPARE_MARGIN 10

enum compare_side { COMPARE_LIBDIST, COMPARE_MPI };

/* ---- which calls are compared ---- */

/*
 * Returns the size class of a block, in powers of 4, from the arguments that are significant on
 * this rank.
 */
static int compare_class(const struct disti_args *args, int rank)
{
    bool sends =
        rank == args->root ? args->kind == DIST_COLL_SCATTER : args->kind == DIST_COLL_GATHER;
    const struct disti_side *side = sends ? &args->send : &args->recv;
    unsigned long long bytes;
    int class;

    if (args->kind == DIST_COLL_BARRIER || side->count <= 0 || side->type == MPI_DATATYPE_NULL)
        return 0;
    bytes = (unsigned long long)side->count * disti_type_size(side->type);
    class = bytes ? (65 - __builtin_clzll(bytes)) / 2 : 0;
    return class < DISTI_CLASSES ? class : DISTI_CLASSES - 1;
}

/* ---- turns ---- */

/* Returns the number of served calls before the turns. */
static int compare_served(const struct disti_comparison *comparison)
{
    return COMPARE_SERVED << (comparison->tries * COMPARE_LATER);
}

struct disti_comparison *disti_comparison_find(const struct disti_args *args,
                                               const struct disti_comm *comm)
{
    if (!disti_preload.compares || comm->ranks == 1 || disti_collective_uneven(args->kind) ||
        (disti_algorithm_reduces(args->kind) &&
         !disti_reduction_is_exact(args->recv.type, args->op)))
        return NULL;
    return &args->channel->comparisons[args->kind][compare_class(args, comm->rank)];
}

enum disti_why disti_compare(struct disti_args *args, struct disti_comparison *comparison)
{
    int served, turn;

    if (comparison->served)
        return DISTI_WHY_SERVED;
    if (comparison->forwarded)
        return DISTI_WHY_SLOWER;
    served = compare_served(comparison);
    if (comparison->calls < served) {
        comparison->calls++;
        return DISTI_WHY_SERVED;
    }
    turn = (comparison->calls - served) / COMPARE_TURN;
    args->comparison = comparison;
    comparison->begun_s = PMPI_Wtime();
    return turn % 2 == COMPARE_LIBDIST ? DISTI_WHY_SERVED : DISTI_WHY_COMPARED;
}

/*
 * True if every turn of this side was shorter than every turn of the other side, summed over all
 * ranks.
 */
static bool compare_is_faster(const long long turns_ns[DISTI_TURNS], enum compare_side side)
{
    long long longest = 0, least = LLONG_MAX;

    for (int turn = 0; turn < DISTI_TURNS; turn++) {
        if (turn % 2 == (int)side)
            longest = turns_ns[turn] > longest ? turns_ns[turn] : longest;
        else
            least = turns_ns[turn] < least ? turns_ns[turn] : least;
    }
    return longest * 100 < least * (100 - COMPARE_MARGIN);
}

void disti_compare_end(const struct disti_args *args)
{
    struct disti_comparison *comparison = args->comparison;
    double took_s = PMPI_Wtime() - comparison->begun_s;
    int call = comparison->calls++ - compare_served(comparison), turn = call / COMPARE_TURN;
    long long mine[DISTI_TURNS], all[DISTI_TURNS];

    if (call % COMPARE_TURN != 0)
        comparison->turns_s[turn] += (float)took_s;
    if (call != DISTI_TURNS * COMPARE_TURN - 1)
        return;
    /*
     * Sums of integers are equal on every rank. If MPI fails, the sums are 0 and nothing is
     * decided.
     */
    for (int t = 0; t < DISTI_TURNS; t++) {
        mine[t] = (long long)(comparison->turns_s[t] * 1e9f);
        all[t] = 0;
    }
    (void)comm_agree(args->comm, mine, all, DISTI_TURNS, MPI_LONG_LONG, MPI_SUM);
    comparison->forwarded = compare_is_faster(all, COMPARE_MPI);
    comparison->served = compare_is_faster(all, COMPARE_LIBDIST);
    if (comparison->forwarded || comparison->served)
        return;
    /* No decision: the comparison is repeated later. */
    if (++comparison->tries == COMPARE_TRIES) {
        comparison->served = true;
        return;
    }
    comparison->calls = 0;
    for (int t = 0; t < DISTI_TURNS; t++)
        comparison->turns_s[t] = 0;
}
