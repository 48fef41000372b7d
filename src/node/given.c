/* SPDX-License-Identifier: BSD-3-Clause */
/* Boards and windows of groups that have ended, while peers may still read them. */
#include "base/clock.h"
#include "base/process_lock.h"
#include "node/state.h"

#include <stdlib.h>

/* A call that began as the group ended may meet its deadline after its own, and wait for a lock. */
#define GIVEN_TIMEOUTS 2

struct given {
    struct given *next;
    void *memory;
    int64_t until_ns;
};

DISTI_PROCESS_LOCK(given_lock);
static struct given *given_list;

static void given_sweep(void)
{
    struct given **at = &given_list;

    while (*at) {
        struct given *given = *at;

        if (!disti_expired(given->until_ns)) {
            at = &given->next;
            continue;
        }
        *at = given->next;
        disti_segment_free(given->memory);
        free(given);
    }
}

void disti_node_give(void *memory, bool at_once, int timeout_ms)
{
    struct given *given = NULL;

    pthread_mutex_lock(&given_lock);
    given_sweep();
    if (memory && !at_once)
        given = calloc(1, sizeof(*given)); /* without memory it is never given back */
    if (given) {
        given->memory = memory;
        given->until_ns = disti_deadline_ms((int64_t)GIVEN_TIMEOUTS * timeout_ms);
        given->next = given_list;
        given_list = given;
    } else if (memory && at_once) {
        disti_segment_free(memory);
    }
    pthread_mutex_unlock(&given_lock);
}
