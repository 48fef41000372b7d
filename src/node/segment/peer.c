/* SPDX-License-Identifier: BSD-3-Clause */
/* This process's mappings of other processes' segments, held or kept for the next time. */
#include "node/segment/segment.h"

#include "base/log.h"
#include "node/segment/file.h"
#include "node/segment/table.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <unistd.h>

/* Keys are random, so their lowest bits choose a chain. */
#define PEER_CHAINS 256

struct peer {
    struct peer *next;       /* of its chain */
    TAILQ_ENTRY(peer) entry; /* in peer_idle, while nobody holds it */
    unsigned holders;
    uint64_t key;
    size_t bytes;
    void *memory;
};

static pthread_mutex_t peer_lock = PTHREAD_MUTEX_INITIALIZER;
static struct peer *peer_chains[PEER_CHAINS];
/* That nobody holds, the one released last first. */
static TAILQ_HEAD(peer_queue, peer) peer_idle = TAILQ_HEAD_INITIALIZER(peer_idle);
static size_t peer_idle_count;

static struct peer **peer_entry(uint64_t key)
{
    struct peer **entry = &peer_chains[key % PEER_CHAINS];

    while (*entry && (*entry)->key != key)
        entry = &(*entry)->next;
    return entry;
}

static void peer_reuse(struct peer *peer)
{
    TAILQ_REMOVE(&peer_idle, peer, entry);
    peer_idle_count--;
}

static void peer_drop(struct peer *peer)
{
    *peer_entry(peer->key) = peer->next;
    peer_reuse(peer);
    munmap(peer->memory, peer->bytes);
    free(peer);
}

/* A forked child has no part in them: there they do not exist. Nor has a core dump, which would
 * make pages of all that the owner has not touched. */
static dist_status peer_map(const struct disti_segment_name *name, struct peer *peer)
{
    dist_status status;
    int fd;

    status = disti_segment_file_open(name, &fd);
    if (status != DIST_OK)
        return status;
    peer->key = name->key;
    peer->bytes = name->bytes;
    status = disti_segment_file_map(fd, 0, peer->bytes, &peer->memory);
    if (status == DIST_OK) {
        madvise(peer->memory, peer->bytes, MADV_DONTFORK);
        madvise(peer->memory, peer->bytes, MADV_DONTDUMP);
    }
    close(fd);
    return status;
}

/* With the lock held. */
static dist_status peer_new(const struct disti_segment_name *name, struct peer **peer_p)
{
    struct peer *peer = calloc(1, sizeof(*peer));
    dist_status status =
        peer ? peer_map(name, peer) : disti_fail(DIST_ERR_NO_MEMORY, "no memory for a mapping");

    if (status != DIST_OK) {
        free(peer);
        return status;
    }
    *peer_entry(peer->key) = peer;
    *peer_p = peer;
    return DIST_OK;
}

static dist_status peer_find(const struct disti_segment_name *name, void **memory_p)
{
    struct peer *peer;
    dist_status status = DIST_OK;

    pthread_mutex_lock(&peer_lock);
    peer = *peer_entry(name->key);
    if (!peer) {
        status = peer_new(name, &peer);
    } else if (peer->bytes != name->bytes) {
        status = disti_fail(DIST_ERR_SYSTEM,
                            "process %d offered the same memory once with %zu bytes and once with "
                            "%zu",
                            name->pid, peer->bytes, (size_t)name->bytes);
    } else if (peer->holders == 0) {
        peer_reuse(peer);
    }
    if (status == DIST_OK) {
        peer->holders++;
        *memory_p = peer->memory;
    }
    pthread_mutex_unlock(&peer_lock);
    return status;
}

/*
 * The owner's own is found at the owner's address: so ranks that are threads of one process share
 * one mapping, which is what ThreadSanitizer needs to see what they do to each other.
 */
dist_status disti_segment_map(const struct disti_segment_name *name, void **memory_p)
{
    int32_t pid = disti_segment_begin();
    void *memory;

    if (name->key == 0 || name->bytes == 0)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "no segment is named");
    if (name->pid != pid)
        return peer_find(name, memory_p);
    memory = disti_segment_table_find_key(name->key);
    if (!memory)
        return disti_fail(DIST_ERR_SYSTEM,
                          "this process, which is number %d too, does not have the offered memory: "
                          "it has been freed, or its owner is in another PID namespace",
                          pid);
    *memory_p = memory;
    return DIST_OK;
}

dist_status disti_segment_can_map(const struct disti_segment_name *name)
{
    bool mapped;
    dist_status status;
    int fd;

    if (name->pid == disti_segment_begin())
        return DIST_OK;
    pthread_mutex_lock(&peer_lock);
    mapped = *peer_entry(name->key);
    pthread_mutex_unlock(&peer_lock);
    if (mapped)
        return DIST_OK;
    status = disti_segment_file_open(name, &fd);
    if (status == DIST_OK)
        close(fd);
    return status;
}

void disti_segment_inherit(const struct disti_segment_location *location, size_t bytes,
                           bool inherited)
{
    const struct peer *peer;

    pthread_mutex_lock(&peer_lock);
    peer = *peer_entry(location->name.key);
    if (peer)
        madvise((char *)peer->memory + location->offset, bytes,
                inherited ? MADV_DOFORK : MADV_DONTFORK);
    pthread_mutex_unlock(&peer_lock);
}

void disti_segment_peers_lock(void)
{
    pthread_mutex_lock(&peer_lock);
}

void disti_segment_peers_unlock(void)
{
    pthread_mutex_unlock(&peer_lock);
}

void disti_segment_peers_forked(void)
{
    for (int i = 0; i < PEER_CHAINS; i++) {
        while (peer_chains[i]) {
            struct peer *peer = peer_chains[i];

            peer_chains[i] = peer->next;
            free(peer);
        }
    }
    TAILQ_INIT(&peer_idle);
    peer_idle_count = 0;
    disti_segment_peers_unlock();
}

static void peer_trim(size_t keep)
{
    while (peer_idle_count > keep)
        peer_drop(TAILQ_LAST(&peer_idle, peer_queue));
}

void disti_segment_unmap(uint64_t key)
{
    struct peer *peer;

    pthread_mutex_lock(&peer_lock);
    peer = *peer_entry(key);
    if (peer && peer->holders > 0 && --peer->holders == 0) {
        TAILQ_INSERT_HEAD(&peer_idle, peer, entry);
        peer_idle_count++;
        peer_trim(DISTI_SEGMENT_KEEP);
    }
    pthread_mutex_unlock(&peer_lock);
}

void disti_segment_trim(size_t keep)
{
    pthread_mutex_lock(&peer_lock);
    peer_trim(keep);
    pthread_mutex_unlock(&peer_lock);
}
