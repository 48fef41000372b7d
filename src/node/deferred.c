/* SPDX-License-Identifier: BSD-3-Clause */
/* Boards and windows of groups that have ended, while peers may still read them. */
#include "base/clock.h"
#include "base/process_lock.h"
#include "node/state.h"

#include <stdlib.h>

/* A call that began as the group ended may meet its deadline after its own, and wait for a lock. */
#define DEFERRED_TIMEOUTS 2

struct deferred {
    struct deferred *next;
    void *memory;
    int64_t until_ns;
};

DISTI_PROCESS_LOCK(deferred_lock);
static struct deferred *deferred_list;

static void deferred_sweep(void)
{
    struct deferred **at = &deferred_list;

    while (*at) {
        struct deferred *deferred = *at;

        if (!disti_expired(deferred->until_ns)) {
            at = &deferred->next;
            continue;
        }
        *at = deferred->next;
        disti_segment_free(deferred->memory);
        free(deferred);
    }
}

void disti_node_free(void *memory, bool now, int timeout_ms)
{
    struct deferred *deferred = NULL;

    pthread_mutex_lock(&deferred_lock);
    deferred_sweep();
    if (memory && !now)
        deferred = calloc(1, sizeof(*deferred)); /* without memory it is never freed */
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
