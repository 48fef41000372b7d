/* SPDX-License-Identifier: BSD-3-Clause */
/* Sleeping until a peer has reached a stage, and waking those that sleep. */
#include "base/bell.h"
#include "base/descriptor.h"
#include "node/state.h"

#include <fcntl.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Who stores a stage and then looks who sleeps, and who says that it sleeps and then looks at the
 * stages, must not both look before the other's store is seen:
 *
 *     stage = 7                      mood = ASLEEP
 *     ------------ a fence on both sides, or one on all CPUs ------------
 *     mood == ASLEEP? ring           stage == 7? do not sleep
 *
 * A stage is stored in every call and drains the store buffer if it is fenced; a rank goes to sleep
 * rarely. So the one that sleeps has the kernel fence the CPUs of all processes that have
 * registered for it (membarrier(2)), and the other needs none. Where a rank cannot, all of them
 * fence.
 */
static bool bell_barrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0) == 0;
}

/*
 * The bell is a pipe, one for all groups of the process: a process of the same user can open it
 * through the owner's descriptor. Who rings writes the number that the node has there. All threads
 * that sleep for a node look at the pipe; the one that reads it passes on what is not for itself,
 * to the bells that the threads have.
 */
struct node_far_bell {
    struct node_far_bell *next;
    int32_t pid;
    uint64_t inode;
    int fd;
    unsigned holders;
};

static pthread_mutex_t bell_lock = PTHREAD_MUTEX_INITIALIZER;
static int bell_pipe[2] = {-1, -1}; /* to read, to write; while there are nodes */
static uint64_t bell_inode;
static struct disti_node **bell_nodes; /* by number, NULL: free */
static uint32_t bell_room, bell_count;
static struct node_far_bell *bell_far; /* other processes' */

/* What comes in one read; a pipe that holds more than so much may have been full. */
#define BELL_NUMBERS 1024
#define BELL_MANY (8 * 1024)

/* The descriptors of a forked child are the parent's, and closed there. */
static void bell_forked(void)
{
    pthread_mutex_init(&bell_lock, NULL);
    bell_pipe[0] = bell_pipe[1] = -1;
    bell_nodes = NULL;
    bell_room = bell_count = 0;
    bell_far = NULL;
}

static void bell_watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, bell_forked);
}

static dist_status bell_make(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct stat info;

    pthread_once(&once, bell_watch_forks);
    if (bell_pipe[0] >= 0)
        return DIST_OK;
    if (pipe2(bell_pipe, O_CLOEXEC | O_NONBLOCK) < 0) {
        bell_pipe[0] = bell_pipe[1] = -1;
        return DIST_ERR_SYSTEM;
    }
    disti_descriptor_own(bell_pipe[0]);
    disti_descriptor_own(bell_pipe[1]);
    if (fstat(bell_pipe[1], &info) < 0)
        return DIST_ERR_SYSTEM;
    bell_inode = info.st_ino;
    return DIST_OK;
}

/* A free number. */
static bool bell_number(uint32_t *number_p)
{
    uint32_t number = 0, room = bell_room ? 2 * bell_room : 16;
    struct disti_node **larger;

    while (number < bell_room && bell_nodes[number])
        number++;
    if (number == bell_room) {
        larger = realloc(bell_nodes, room * sizeof(struct disti_node *));
        if (!larger)
            return false;
        memset(larger + bell_room, 0, (room - bell_room) * sizeof(struct disti_node *));
        bell_nodes = larger;
        bell_room = room;
    }
    *number_p = number;
    return true;
}

/* The last node takes the pipe with it. */
static void bell_end(void)
{
    if (bell_count)
        return;
    for (int i = 0; i < 2; i++) {
        disti_descriptor_close(bell_pipe[i]);
        bell_pipe[i] = -1;
    }
    free(bell_nodes);
    bell_nodes = NULL;
    bell_room = 0;
}

dist_status disti_node_bell_open(struct disti_node *node, struct disti_node_hello *hello)
{
    dist_status status;

    pthread_mutex_lock(&bell_lock);
    status = bell_make();
    if (status == DIST_OK && !bell_number(&node->bell_number))
        status = DIST_ERR_NO_MEMORY;
    if (status == DIST_OK) {
        bell_nodes[node->bell_number] = node;
        bell_count++;
        node->has_bell = true;
        hello->bell_fd = bell_pipe[1];
        hello->bell_inode = bell_inode;
        hello->bell_number = node->bell_number;
    }
    bell_end();
    pthread_mutex_unlock(&bell_lock);
    hello->fences = !bell_barrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
    return status;
}

/* ---- other processes' bells ---- */

/* Opens the peer's bell; -1: it is gone. To read too: to write to a pipe without readers is a
 * signal that kills. */
static int bell_reach(const struct disti_node_hello *hello)
{
    struct stat info;
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)hello->board.name.pid, (int)hello->bell_fd);
    if (stat(path, &info) < 0 || !S_ISFIFO(info.st_mode) ||
        (uint64_t)info.st_ino != hello->bell_inode)
        return -1;
    return disti_descriptor_own(open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC));
}

/* With the lock held. NULL: it is gone, or there is no memory. */
static struct node_far_bell *bell_take_far(const struct disti_node_hello *hello)
{
    struct node_far_bell *far = bell_far;

    while (far && (far->pid != hello->board.name.pid || far->inode != hello->bell_inode))
        far = far->next;
    if (!far) {
        far = calloc(1, sizeof(*far));
        if (!far)
            return NULL;
        far->pid = hello->board.name.pid;
        far->inode = hello->bell_inode;
        far->fd = bell_reach(hello);
        if (far->fd < 0) {
            free(far);
            return NULL;
        }
        far->next = bell_far;
        bell_far = far;
    }
    far->holders++;
    return far;
}

static void bell_give_far(struct node_far_bell *far)
{
    struct node_far_bell **at = &bell_far;

    if (!far || --far->holders)
        return;
    while (*at != far)
        at = &(*at)->next;
    *at = far->next;
    disti_descriptor_close(far->fd);
    free(far);
}

void disti_node_bell_close(struct disti_node *node)
{
    pthread_mutex_lock(&bell_lock);
    for (int r = 0; node->peers && r < node->ranks; r++)
        bell_give_far(node->peers[r].bell);
    if (node->has_bell && node->bell_number < bell_room && bell_nodes[node->bell_number] == node) {
        bell_nodes[node->bell_number] = NULL;
        bell_count--;
        bell_end();
    }
    pthread_mutex_unlock(&bell_lock);
}

/* A full pipe has woken its owner already; one that sleeps deaf looks up by itself soon. */
static void bell_ring(struct disti_node *node, int rank)
{
    struct node_peer *peer = &node->peers[rank];
    uint32_t number = node->hellos[rank].bell_number;

    if (!peer->bell) {
        pthread_mutex_lock(&bell_lock);
        peer->bell = bell_take_far(&node->hellos[rank]);
        pthread_mutex_unlock(&bell_lock);
    }
    if (peer->bell)
        (void)!write(peer->bell->fd, &number, sizeof(number));
}

/* With the lock held. */
static void bell_pass_on(const struct disti_node *self, uint32_t number)
{
    const struct disti_node *node = number < bell_room ? bell_nodes[number] : NULL;

    if (node && node != self)
        disti_bell_ring(node->sleeper);
}

/* Reads all, for whomever it is. With the lock held. */
static void bell_hear(const struct disti_node *self)
{
    uint32_t numbers[BELL_NUMBERS];
    size_t heard = 0;
    ssize_t got;

    do {
        got = read(bell_pipe[0], numbers, sizeof(numbers));
        for (size_t i = 0; got > 0 && i < (size_t)got / sizeof(numbers[0]); i++)
            bell_pass_on(self, numbers[i]);
        heard += got > 0 ? (size_t)got / sizeof(numbers[0]) : 0;
    } while (got == (ssize_t)sizeof(numbers));
    for (uint32_t number = 0; heard >= BELL_MANY && number < bell_room; number++)
        bell_pass_on(self, number);
}

/* What it has ended before, the others may end too. */
static void bell_miss(struct disti_node *node, int rank)
{
    uint64_t from = node->peers[rank].board->gave_up;

    if (node->gone >= 0 && node->gone_from <= from)
        return;
    node->gone = rank;
    node->gone_from = from;
}

/* Of several that see it asleep one rings. */
static void bell_rouse(struct disti_node *node, int rank)
{
    uint32_t mood = NODE_ASLEEP;

    if (atomic_compare_exchange_strong(&node->peers[rank].board->mood, &mood, NODE_AWAKE))
        bell_ring(node, rank);
    else if (mood == NODE_GONE)
        bell_miss(node, rank);
}

void disti_node_ring(struct disti_node *node)
{
    for (int r = 0; r < node->ranks; r++) {
        if (atomic_load_explicit(&node->peers[r].board->mood, memory_order_seq_cst) != NODE_AWAKE)
            bell_rouse(node, r);
    }
}

/* The calling thread is the one that is to sleep. */
int disti_node_arm(struct disti_node *node, struct disti_node_op *op)
{
    pthread_mutex_lock(&bell_lock);
    node->sleeper = disti_bell();
    pthread_mutex_unlock(&bell_lock);
    node->armed = true;
    atomic_store_explicit(&node->board->mood, NODE_ASLEEP, memory_order_seq_cst);
    if (!node->fences && !bell_barrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED))
        return DIST_ARM_READY; /* it has worked when it was tried: without memory now, perhaps */
    return disti_node_ready(node, op) ? DIST_ARM_READY : bell_pipe[0];
}

void disti_node_disarm(struct disti_node *node)
{
    if (!node->armed)
        return;
    node->armed = false;
    atomic_store_explicit(&node->board->mood, NODE_AWAKE, memory_order_relaxed);
    pthread_mutex_lock(&bell_lock);
    node->sleeper = -1;
    bell_hear(node);
    pthread_mutex_unlock(&bell_lock);
}

void disti_node_abandon(struct disti_node *node, const struct disti_node_op *op)
{
    node->board->gave_up = op->number;
    atomic_store_explicit(&node->board->mood, NODE_GONE, memory_order_seq_cst);
    disti_node_ring(node);
    node->abandoned = true;
    disti_segment_retire(); /* a peer may still be at a piece of what the program now frees */
}

void disti_node_miss(struct disti_node *node)
{
    for (int r = 0; r < node->ranks; r++) {
        if (atomic_load_explicit(&node->peers[r].board->mood, memory_order_acquire) == NODE_GONE)
            bell_miss(node, r);
    }
}
