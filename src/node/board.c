/* SPDX-License-Identifier: BSD-3-Clause */
/* Making the boards of a group's ranks, and mapping them. */
#include "base/clock.h"
#include "base/faults.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/settings/config.h"
#include "node/state.h"

#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* In groups of at most this many ranks each rank maps all windows when it starts: later it may have
 * no descriptor left. In larger groups it only checks that it could map the next rank's, so that
 * starting costs no more with more ranks: every rank's memory is checked by one rank. */
#define BOARD_RANKS_MET 16

static bool board_one_machine(const struct dist_backend_config *config)
{
    for (int r = 1; r < config->world_size; r++) {
        if (config->places[r].node != config->places[0].node)
            return false;
    }
    return config->world_size > 1 && config->world_size <= NODE_RANKS_MAX;
}

static size_t board_bytes(const struct disti_node *node)
{
    return (size_t)node->ranks * (sizeof(struct node_board) + node->area_bytes);
}

/* Where this rank cannot, the others are told, and no board is used. */
static dist_status board_make(struct disti_node *node, struct disti_node_hello *hello)
{
    bool tried;
    int wanted;
    dist_status status = disti_env_int("DIST_NODE_MEMORY", 0, 1, 1, &wanted);

    if (status != DIST_OK || !wanted || disti_faults_need_messages())
        return status;
    if (node->rank ==
        0) { /* memory for all boards, of which each rank makes the pages of its own */
        tried = disti_log_trying(true);
        status = disti_segment_alloc_shared(board_bytes(node), &node->boards, &hello->boards);
        disti_log_trying(tried);
        if (status != DIST_OK)
            return DIST_OK;
    }
    disti_node_window_offer(node, hello);
    node->cpu = -1;
    hello->pid = (int32_t)getpid();
    hello->usable = disti_node_doorbell_open(node, hello) == DIST_OK;
    hello->fences = !disti_node_can_fence();
    hello->crowded = node->config->crowded;
    return disti_node_cma_open(hello);
}

/* -1: all can; else the first rank that cannot. Also sees whether one needs fences, or slots. */
static int board_who_cannot(struct disti_node *node)
{
    const struct disti_segment_location *boards = &node->hellos[0].boards;

    if (boards->offset > boards->name.bytes ||
        boards->name.bytes - boards->offset < board_bytes(node))
        return 0;
    node->cma = true;
    for (int r = 0; r < node->ranks; r++) {
        if (!node->hellos[r].usable)
            return r;
        node->fences |= node->hellos[r].fences;
        if (node->hellos[r].crowded)
            node->last_slot = NODE_SLOTS - 1;
        node->cma &= node->hellos[r].cma;
    }
    return -1;
}

/* Failures are no errors: messages are used instead. */
static bool board_map(struct disti_node *node)
{
    const struct disti_segment_location *at = &node->hellos[0].boards;
    bool tried = disti_log_trying(true);
    struct node_board *boards, **other = node->others;
    unsigned char *areas;
    void *memory;
    dist_status status = disti_segment_map(&at->name, &memory);

    disti_log_trying(tried);
    if (status != DIST_OK)
        return false;
    boards = (void *)((char *)memory + at->offset);
    areas = (void *)(boards + node->ranks);
    for (int r = 0; r < node->ranks; r++) {
        node->peers[r].board = &boards[r];
        node->peers[r].areas = areas + (size_t)r * node->area_bytes;
        if (r != node->rank)
            *other++ = &boards[r];
    }
    node->self = &node->peers[node->rank];
    node->board = node->self->board; /* nobody reads it before this rank's first stage */
    atomic_init(&node->board->cpu, -1);
    atomic_init(&node->board->writes_to, NODE_TO_NONE);
    return true;
}

void disti_node_meet(struct disti_node *node, int rank, const struct disti_node_hello *hello)
{
    if (node)
        node->hellos[rank] = *hello;
}

bool disti_node_map(struct disti_node *node)
{
    int cannot = board_who_cannot(node);
    int hidden = -1; /* the first rank whose memory cannot be mapped */

    if (cannot < 0)
        hidden =
            board_map(node) ? disti_node_windows_meet(node, node->ranks <= BOARD_RANKS_MET) : 0;
    node->used = cannot < 0 && hidden < 0;
    if (cannot >= 0)
        disti_info("no collectives in shared memory: %s",
                   cannot == node->rank ? "DIST_NODE_MEMORY=0, DIST_FAULT, or no memory"
                                        : "another rank does not use it");
    else if (hidden >= 0)
        disti_info("no collectives in shared memory: rank %d cannot map the memory of rank %d: %s",
                   node->rank, hidden, dist_last_error());
    return node->used;
}

static dist_status board_reserve(struct disti_node *node)
{
    size_t ranks = (size_t)node->ranks;

    node->peers = calloc(ranks, sizeof(*node->peers));
    node->others = calloc(ranks, sizeof(*node->others));
    node->hellos = calloc(ranks, sizeof(*node->hellos));
    node->sources = calloc(ranks, sizeof(*node->sources));
    node->targets = calloc(ranks + 1, sizeof(*node->targets));
    node->tiles = aligned_alloc(NODE_APART, NODE_TILES * NODE_TILE);
    if (!node->peers || !node->others || !node->hellos || !node->sources || !node->targets ||
        !node->tiles)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for the boards of %d ranks", node->ranks);
    return DIST_OK;
}

static int board_cpus(const struct dist_backend_config *config)
{
    cpu_set_t usable;

    if (!config->crowded || sched_getaffinity(0, sizeof(usable), &usable) < 0 ||
        CPU_COUNT(&usable) > config->world_size)
        return config->world_size;
    return CPU_COUNT(&usable);
}

bool disti_node_is_crowded(const struct disti_node *node)
{
    return node->config->crowded;
}

void disti_node_use_ring(struct disti_node *node)
{
    if (!node_use_ring(node))
        return;
#ifdef MADV_POPULATE_WRITE /* where the kernel cannot, pages come one by one */
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    unsigned char *ring = node->self->areas;

    (void)madvise(ring - (uintptr_t)ring % page, node->area_bytes, MADV_POPULATE_WRITE);
#endif
}

dist_status disti_node_open(const struct dist_backend_config *config,
                            struct disti_node_hello *hello, struct disti_node **node_p)
{
    struct disti_node *node;
    dist_status status;

    memset(hello, 0, sizeof(*hello));
    if (!board_one_machine(config))
        return DIST_OK;
    node = calloc(1, sizeof(*node));
    if (!node)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for the ranks of this machine");
    node->config = config;
    node->rank = config->rank;
    node->ranks = config->world_size;
    node->round_bytes = NODE_ROUND_BYTES;
    node_size_areas(node);
    node->last_slot = NODE_SLOTS_ALONE - 1;
    node->cpus = board_cpus(config);
    node->cache_bytes = disti_node_cache() * (size_t)node->cpus / (size_t)node->ranks;
    node->gone = -1;
    for (node->operands = 1; 2 * node->operands <= node->ranks;)
        node->operands *= 2;
    node->sleeper = -1;
    status = disti_node_migrate_open(node);
    if (status == DIST_OK)
        status = board_reserve(node);
    if (status == DIST_OK)
        status = board_make(node, hello);
    if (status == DIST_OK)
        *node_p = node;
    else
        disti_node_close(node);
    return status;
}

/* Boards and windows of groups that have ended, while peers may still read them. */

/* A call that began as the group ended may meet its deadline after its own, and wait for a lock. */
#define DEFERRED_TIMEOUTS 2

struct deferred {
    struct deferred *next;
    void *memory;
    int64_t until_ns;
};

DISTI_PROCESS_LOCK(deferred_lock);
static struct deferred *deferred_list;

/*
 * Frees memory of disti_segment_alloc_shared, now or once every call of the group's ranks must have
 * met its deadline: a peer that has not heard of the group's end may still read it. NULL: nothing.
 */
static void board_free(void *memory, bool now, int timeout_ms)
{
    struct deferred **at = &deferred_list, *deferred;

    pthread_mutex_lock(&deferred_lock);
    while (*at) {
        deferred = *at;
        if (!disti_expired(deferred->until_ns)) {
            at = &deferred->next;
            continue;
        }
        *at = deferred->next;
        disti_segment_free(deferred->memory);
        free(deferred);
    }
    deferred = memory && !now ? calloc(1, sizeof(*deferred)) : NULL; /* NULL: never freed */
    if (deferred) {
        deferred->memory = memory;
        deferred->until_ns = disti_deadline_ms((int64_t)DEFERRED_TIMEOUTS * timeout_ms);
        deferred->next = deferred_list;
        deferred_list = deferred;
    } else if (memory && now) {
        disti_segment_free(memory);
    }
    pthread_mutex_unlock(&deferred_lock);
}

void disti_node_close(struct disti_node *node)
{
    bool now;

    if (!node)
        return;
    now = node->config->left || !node->used;
    for (int r = 0; node->peers && node->hellos && r < node->ranks; r++) {
        if (r == node->rank)
            continue;
        disti_node_unview(&node->peers[r]);
        disti_segment_unmap(node->peers[r].window_key);
    }
    if (node->board)
        disti_segment_unmap(node->hellos[0].boards.name.key);
    disti_node_doorbell_close(node);
    board_free(node->boards, now, node->config->timeout_ms);
    board_free(node->window, now, node->config->timeout_ms);
    if (node->abandoned)
        disti_segment_trim(0); /* the memory of ranks that were killed is kept by no other */
    disti_node_migrate_close(node);
    free(node->peers);
    free(node->others);
    free(node->hellos);
    free(node->sources);
    free(node->targets);
    free(node->tiles);
    for (int i = 0; i < DIST_COLL_COUNT; i++)
        free(node->agains[i]);
    free(node);
}
