/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The doorbell of a process, with which other ranks wake its threads; sleeping and waking in calls;
 * yielding the CPU to other ranks.
 */
#include "base/descriptor.h"
#include "base/process.h"
#include "node/state.h"

#include <fcntl.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * The doorbell is a pipe, one for all groups of the process. A process of the same user can open
 * the pipe through the owner's descriptor. To ring the doorbell, a rank writes the number that the
 * node has in the owner's process. All threads that sleep in a node poll the pipe. The thread that
 * reads the pipe forwards the numbers of other nodes to the threads of those nodes, through the
 * threads' own doorbells (base/descriptor.h).
 */
struct node_far_doorbell {
    struct node_far_doorbell *next;
    int32_t pid;
    uint64_t inode;
    int fd;
    unsigned references; /* number of peers, in all nodes, that use it */
};

static pthread_mutex_t doorbell_lock = PTHREAD_MUTEX_INITIALIZER;
static int doorbell_pipe[2] = {-1, -1}; /* read end, write end; -1 if there are no nodes */
static uint64_t doorbell_inode;
static struct disti_node **doorbell_nodes; /* indexed by number; NULL: free */
static uint32_t doorbell_capacity, doorbell_count;
static struct node_far_doorbell *doorbell_far; /* doorbells of other processes */
static unsigned doorbell_far_count;

/*
 * Number of other processes' doorbells that stay open. Further doorbells are opened for each ring,
 * because a process may have a thousand peers.
 */
#define DOORBELL_KEEP 128

/*
 * DOORBELL_NUMBERS: count of numbers read at once. DOORBELL_MANY: if at least this many numbers
 * have been read, the pipe may have been full and some numbers missing; all nodes are then
 * notified.
 */
#define DOORBELL_NUMBERS 1024
#define DOORBELL_MANY (8 * 1024)

/* In a forked child: forgets the doorbells, whose descriptors base/descriptor.c closes. */
static void doorbell_forked(void)
{
    pthread_mutex_init(&doorbell_lock, NULL);
    doorbell_pipe[0] = doorbell_pipe[1] = -1;
    doorbell_nodes = NULL;
    doorbell_capacity = doorbell_count = 0;
    doorbell_far = NULL;
    doorbell_far_count = 0;
}

static void doorbell_watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, doorbell_forked);
}

static dist_status doorbell_make(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct stat info;

    pthread_once(&once, doorbell_watch_forks);
    if (doorbell_pipe[0] >= 0)
        return DIST_OK;
    if (pipe2(doorbell_pipe, O_CLOEXEC | O_NONBLOCK) < 0) {
        doorbell_pipe[0] = doorbell_pipe[1] = -1;
        return DIST_ERR_SYSTEM;
    }
    doorbell_pipe[0] = disti_descriptor_own(doorbell_pipe[0]);
    doorbell_pipe[1] = disti_descriptor_own(doorbell_pipe[1]);
    if (fstat(doorbell_pipe[1], &info) < 0)
        return DIST_ERR_SYSTEM;
    doorbell_inode = info.st_ino;
    return DIST_OK;
}

/* Finds a free number for a node. */
static bool doorbell_number(uint32_t *number_p)
{
    uint32_t number = 0, capacity = doorbell_capacity ? 2 * doorbell_capacity : 16;
    struct disti_node **larger;

    while (number < doorbell_capacity && doorbell_nodes[number])
        number++;
    if (number == doorbell_capacity) {
        larger = realloc(doorbell_nodes, capacity * sizeof(struct disti_node *));
        if (!larger)
            return false;
        memset(larger + doorbell_capacity, 0,
               (capacity - doorbell_capacity) * sizeof(struct disti_node *));
        doorbell_nodes = larger;
        doorbell_capacity = capacity;
    }
    *number_p = number;
    return true;
}

/* Closes the pipe if the process has no node. */
static void doorbell_close_unused(void)
{
    if (doorbell_count)
        return;
    for (int i = 0; i < 2; i++) {
        disti_descriptor_close(doorbell_pipe[i]);
        doorbell_pipe[i] = -1;
    }
    free(doorbell_nodes);
    doorbell_nodes = NULL;
    doorbell_capacity = 0;
}

dist_status disti_node_doorbell_open(struct disti_node *node, struct disti_node_hello *hello)
{
    dist_status status;

    pthread_mutex_lock(&doorbell_lock);
    status = doorbell_make();
    if (status == DIST_OK && !doorbell_number(&node->doorbell_number))
        status = DIST_ERR_NO_MEMORY;
    if (status == DIST_OK) {
        doorbell_nodes[node->doorbell_number] = node;
        doorbell_count++;
        node->has_doorbell = true;
        hello->doorbell_fd = doorbell_pipe[1];
        hello->doorbell_inode = doorbell_inode;
        hello->doorbell_number = node->doorbell_number;
    }
    doorbell_close_unused();
    pthread_mutex_unlock(&doorbell_lock);
    return status;
}

/* ---- other processes' doorbells ---- */

/*
 * Opens the peer's doorbell; returns -1 if the doorbell no longer exists. The pipe is opened for
 * reading too, because a write to a pipe without readers raises SIGPIPE.
 */
static int doorbell_open_far(const struct disti_node_hello *hello)
{
    struct stat info;
    char path[DISTI_PROCESS_PATH];

    disti_process_path(hello->pid, hello->doorbell_fd, path);
    if (stat(path, &info) < 0 || !S_ISFIFO(info.st_mode) ||
        (uint64_t)info.st_ino != hello->doorbell_inode)
        return -1;
    return disti_descriptor_own(open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC));
}

/*
 * Returns a reference to the peer's doorbell; NULL if the doorbell no longer exists, memory is
 * exhausted, or DOORBELL_KEEP doorbells are open. Requires doorbell_lock.
 */
static struct node_far_doorbell *doorbell_ref_far(const struct disti_node_hello *hello)
{
    struct node_far_doorbell *far = doorbell_far;

    while (far && (far->pid != hello->pid || far->inode != hello->doorbell_inode))
        far = far->next;
    if (!far && doorbell_far_count == DOORBELL_KEEP)
        return NULL;
    if (!far) {
        far = calloc(1, sizeof(*far));
        if (!far)
            return NULL;
        far->pid = hello->pid;
        far->inode = hello->doorbell_inode;
        far->fd = doorbell_open_far(hello);
        if (far->fd < 0) {
            free(far);
            return NULL;
        }
        far->next = doorbell_far;
        doorbell_far = far;
        doorbell_far_count++;
    }
    far->references++;
    return far;
}

void disti_node_doorbell_close(struct disti_node *node)
{
    pthread_mutex_lock(&doorbell_lock);
    for (int r = 0; node->peers && r < node->ranks; r++) {
        struct node_far_doorbell *far = node->peers[r].doorbell;
        struct node_far_doorbell **at = &doorbell_far;

        if (far && --far->references == 0) {
            while (*at != far)
                at = &(*at)->next;
            *at = far->next;
            doorbell_far_count--;
            disti_descriptor_close(far->fd);
            free(far);
        }
    }
    if (node->has_doorbell && node->doorbell_number < doorbell_capacity &&
        doorbell_nodes[node->doorbell_number] == node) {
        doorbell_nodes[node->doorbell_number] = NULL;
        doorbell_count--;
        doorbell_close_unused();
    }
    pthread_mutex_unlock(&doorbell_lock);
}

/*
 * If the pipe is full, its owner has been woken already. If a doorbell cannot be opened, the
 * sleeping rank checks again by itself after a short time.
 */
void disti_node_doorbell_ring(struct disti_node *node, int rank)
{
    struct node_peer *peer = &node->peers[rank];
    uint32_t number = node->hellos[rank].doorbell_number;

    if (!peer->doorbell) {
        pthread_mutex_lock(&doorbell_lock);
        peer->doorbell = doorbell_ref_far(&node->hellos[rank]);
        pthread_mutex_unlock(&doorbell_lock);
    }
    if (peer->doorbell)
        (void)!write(peer->doorbell->fd, &number, sizeof(number));
    else {
        int fd = doorbell_open_far(&node->hellos[rank]);
        if (fd < 0)
            return;
        (void)!write(fd, &node->hellos[rank].doorbell_number,
                     sizeof(node->hellos[rank].doorbell_number));
        disti_descriptor_close(fd);
    }
}

/*
 * Wakes the sleeping thread of node `number` of this process, unless that is `self`. Requires
 * doorbell_lock.
 */
static void doorbell_forward(const struct disti_node *self, uint32_t number)
{
    const struct disti_node *node = number < doorbell_capacity ? doorbell_nodes[number] : NULL;

    if (node && node != self)
        disti_doorbell_ring(node->sleeper);
}

/*
 * Makes the calling thread the one that is woken for this node. Returns the descriptor that becomes
 * readable when the doorbell rings.
 */
static int node_doorbell_listen(struct disti_node *node)
{
    pthread_mutex_lock(&doorbell_lock);
    node->sleeper = disti_doorbell();
    pthread_mutex_unlock(&doorbell_lock);
    return doorbell_pipe[0];
}

/* The presence of ranks: awake, asleep, or gone because they have given up calls. */

/*
 * One rank stores a stage and then checks whether a peer sleeps. The peer publishes that it sleeps
 * and then checks the stage. At least one of them must see the other's store:
 *
 *     stage = 7                      presence = ASLEEP
 *     ------------ a fence on both sides, or one on all CPUs ------------
 *     presence == ASLEEP? ring           stage == 7? do not sleep
 *
 * Every call stores stages, and a fence there would drain the store buffer each time, although
 * ranks rarely sleep. So the sleeping rank makes the kernel execute a fence on the CPUs of all
 * processes that have registered for it (membarrier(2)), and the other rank needs no fence. If
 * membarrier(2) does not work for some rank, all ranks use fences.
 */

/*
 * Stores that `rank` has given up its calls from number `abandoned_from` on. Earlier calls can
 * still end.
 */
static void presence_note_abandoned(struct disti_node *node, int rank)
{
    uint64_t from = node->peers[rank].mailbox->abandoned_from;

    if (node->abandoned_rank >= 0 && node->abandoned_from <= from)
        return;
    node->abandoned_rank = rank;
    node->abandoned_from = from;
}

static uint32_t presence_asleep(int awaited)
{
    return NODE_ASLEEP | (uint32_t)awaited << NODE_PRESENCE_BITS;
}

/*
 * Wakes `rank` if it sleeps until this rank reaches a stage, or, if `any`, until any rank does. If
 * several ranks see it asleep, only one rings its doorbell.
 */
static void presence_wake(struct disti_node *node, int rank, bool any)
{
    _Atomic uint32_t *place = &node->peers[rank].mailbox->presence;
    uint32_t presence = atomic_load_explicit(place, memory_order_seq_cst);

    if (presence == NODE_GONE)
        presence_note_abandoned(node, rank);
    else if (presence != NODE_AWAKE && (any || presence == presence_asleep(node->rank)) &&
             atomic_compare_exchange_strong(place, &presence, NODE_AWAKE))
        disti_node_doorbell_ring(node, rank);
}

void disti_node_ring(struct disti_node *node)
{
    for (int r = 0; r < node->ranks; r++)
        presence_wake(node, r, false);
}

/*
 * Returns the rank that is to wake this rank; -1 if the op waits for no rank. It is the awaited
 * rank with the highest number, because ranks often arrive in the order of their numbers. If each
 * awaited rank woke this rank, it would wake up too often.
 */
static int presence_awaited(const struct disti_node *node, const struct disti_node_op *op)
{
    int rank = node->ranks - 1;

    while (rank >= 0 && !disti_node_waits_for(node, op, rank))
        rank--;
    return rank;
}

int disti_node_arm(struct disti_node *node, struct disti_node_op *op)
{
    int doorbell = node_doorbell_listen(node), awaited = presence_awaited(node, op);

    node->armed = true;
    if (awaited < 0)
        return DIST_ARM_READY;
    atomic_store_explicit(&node->mailbox->presence, presence_asleep(awaited), memory_order_seq_cst);
    if (!node->fences && syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) != 0)
        return DIST_ARM_READY; /* membarrier(2) worked at start-up; memory may be exhausted */
    return disti_node_waits_for(node, op, awaited) ? doorbell : DIST_ARM_READY;
}

void disti_node_disarm(struct disti_node *node)
{
    if (!node->armed)
        return;
    node->armed = false;
    atomic_store_explicit(&node->mailbox->presence, NODE_AWAKE, memory_order_relaxed);
    /* No thread of this node sleeps now. Forwards the numbers of the other nodes of the process. */
    pthread_mutex_lock(&doorbell_lock);
    node->sleeper = -1;
    uint32_t numbers[DOORBELL_NUMBERS];
    size_t received = 0;
    ssize_t got;
    do {
        got = read(doorbell_pipe[0], numbers, sizeof(numbers));
        for (size_t i = 0; got > 0 && i < (size_t)got / sizeof(numbers[0]); i++)
            doorbell_forward(node, numbers[i]);
        received += got > 0 ? (size_t)got / sizeof(numbers[0]) : 0;
    } while (got == (ssize_t)sizeof(numbers));
    for (uint32_t number = 0; received >= DOORBELL_MANY && number < doorbell_capacity; number++)
        doorbell_forward(node, number);
    pthread_mutex_unlock(&doorbell_lock);
}

void disti_node_abandon(struct disti_node *node, const struct disti_node_op *op)
{
    node->mailbox->abandoned_from = op->number;
    atomic_store_explicit(&node->mailbox->presence, NODE_GONE, memory_order_seq_cst);
    for (int r = 0; r < node->ranks; r++)
        presence_wake(node, r, true);
    disti_node_cma_drain(node);
    node->abandoned = true;
    disti_segment_retire(); /* a peer may still write to memory that the program now frees */
}

void disti_node_note_abandoned(struct disti_node *node)
{
    for (int r = 0; r < node->ranks; r++) {
        if (atomic_load_explicit(&node->peers[r].mailbox->presence, memory_order_acquire) ==
            NODE_GONE)
            presence_note_abandoned(node, r);
    }
}

/*
 * Ranks that share CPUs leave a barrier one after another; the last to arrive leaves first. Suppose
 * that a rooted call follows, such as a broadcast. Its receivers can only yield their CPUs again
 * until the ranks that they wait for have run. So a rank that had to wait in the call after a
 * barrier lets the awaited ranks run first at the end of the next barrier, as long as each barrier
 * is followed by the same call:
 *
 *    barrier                  | broadcast: waits for the root         stores the awaited ranks
 *    barrier: the rank yields | broadcast: the data have arrived      keeps them
 *    barrier: the rank yields | another call                          forgets them
 *
 * The awaited ranks are the root in a broadcast or scatter, and all other ranks in a gather or
 * reduce. In calls in which all ranks wait for each other, no rank gains by running later.
 */

/*
 * Largest number of times that a rank yields its CPU at the end of a barrier. A yield lasts a few
 * microseconds if no other thread wants the CPU.
 */
#define YIELD_TURNS 16

/*
 * Returns true if the receivers of this call wait for ranks that do not wait for the receivers,
 * because the data are sent through a mailbox.
 */
static bool yield_is_one_way(const struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);

    if (pattern->senders == pattern->receivers)
        return false;
    return op->irregular ? op->place != NODE_IN_MEMORY : op->method == NODE_METHOD_MAILBOX;
}

void disti_node_yield_learn(struct disti_node *node, const struct disti_node_op *op)
{
    if (op->number != node->yield.barrier + 1 || op->first == op->end || !yield_is_one_way(op))
        return;
    node->yield.first = op->first;
    node->yield.end = op->end;
    node->yield.fingerprint = op->fingerprint;
}

/*
 * Returns true if the stored call also followed the previous barrier; `number` is the call of the
 * present barrier. The fingerprint in the slot is valid until the next call in that slot begins.
 */
static bool yield_was_followed(const struct disti_node *node, uint64_t number)
{
    uint64_t next = node->yield.barrier + 1;
    const struct node_slot *slot = &node->mailbox->slots[node_slot_number(node, next)];

    return number - next <= node->last_slot &&
           atomic_load_explicit(&slot->fingerprint, memory_order_relaxed) ==
               node->yield.fingerprint;
}

/*
 * Yields until the awaited ranks have begun the call after the barrier. Returns false if they have
 * not done so after YIELD_TURNS yields.
 */
static bool yield_to_awaited(const struct disti_node *node)
{
    int turns = 0;

    for (int r = node->yield.first; r < node->yield.end; r++) {
        while (r != node->rank &&
               atomic_load_explicit(&node->peers[r].mailbox->begun, memory_order_acquire) <=
                   node->yield.barrier) {
            if (turns++ == YIELD_TURNS)
                return false;
            sched_yield();
        }
    }
    return true;
}

void disti_node_yield_after_barrier(struct disti_node *node, const struct disti_node_op *op)
{
    bool is_repeated = node->yield.end > node->yield.first && yield_was_followed(node, op->number);

    node->yield.barrier = op->number;
    if (!is_repeated || !yield_to_awaited(node))
        node->yield.end = node->yield.first;
}
