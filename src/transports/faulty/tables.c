/* SPDX-License-Identifier: BSD-3-Clause */
/* A table for each transport that is wrapped. A slot is not told whose it is, so that each table
 * has functions of its own. */
#include "base/faults/faults.h"
#include "base/process_lock.h"
#include "transports/faulty/faulty.h"
#include "transports/faulty/state.h"

#include <stdalign.h>

#define TABLES_EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define TABLES 8

DISTI_PROCESS_LOCK(tables_lock);
static struct faulty_table tables[TABLES];

#define TABLES_FUNCTIONS(i)                                                                        \
    static void tables_send_##i(void *state, struct dist_request *request)                         \
    {                                                                                              \
        disti_faulty_send(&tables[i], state, request);                                             \
    }                                                                                              \
    static int tables_progress_##i(void *state)                                                    \
    {                                                                                              \
        return disti_faulty_progress(&tables[i], state);                                           \
    }                                                                                              \
    static int tables_arm_##i(void *state)                                                         \
    {                                                                                              \
        return disti_faulty_arm(&tables[i], state);                                                \
    }                                                                                              \
    static void tables_disarm_##i(void *state)                                                     \
    {                                                                                              \
        disti_faulty_disarm(&tables[i], state);                                                    \
    }                                                                                              \
    static void tables_close_##i(void *state)                                                      \
    {                                                                                              \
        disti_faulty_close(&tables[i], state);                                                     \
    }                                                                                              \
    static void tables_cancel_##i(void *state, uint64_t tag, uint64_t mask)                        \
    {                                                                                              \
        disti_faulty_cancel(&tables[i], state, tag, mask);                                         \
    }
TABLES_EACH(TABLES_FUNCTIONS)

#define TABLES_SLOTS(i)                                                                            \
    {.send = tables_send_##i,                                                                      \
     .progress = tables_progress_##i,                                                              \
     .arm = tables_arm_##i,                                                                        \
     .disarm = tables_disarm_##i,                                                                  \
     .close = tables_close_##i,                                                                    \
     .cancel = tables_cancel_##i},
static const struct dist_transport tables_own[TABLES] = {TABLES_EACH(TABLES_SLOTS)};

static void tables_fill(int i, const struct dist_transport *inner)
{
    const struct dist_transport *own = &tables_own[i];
    struct faulty_table *table = &tables[i];
    size_t align = alignof(max_align_t);

    table->at = (inner->state_size + align - 1) / align * align;
    table->table = *inner;
    table->table.state_size = table->at + sizeof(struct faulty_state);
    table->table.send = own->send;
    table->table.progress = own->progress;
    table->table.arm = own->arm;
    table->table.disarm = own->disarm;
    table->table.close = own->close;
    if (inner->cancel)
        table->table.cancel = own->cancel;
    table->inner = inner;
}

const struct dist_transport *disti_transport_faulty(const struct dist_transport *transport)
{
    const struct dist_transport *faulty = transport;
    int i = 0;

    if (!transport || !disti_faults_need_messages())
        return transport;
    pthread_mutex_lock(&tables_lock);
    while (i < TABLES && tables[i].inner && tables[i].inner != transport &&
           &tables[i].table != transport)
        i++;
    if (i < TABLES) {
        if (!tables[i].inner)
            tables_fill(i, transport);
        faulty = &tables[i].table;
    }
    pthread_mutex_unlock(&tables_lock);
    return faulty;
}
