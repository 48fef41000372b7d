/* SPDX-License-Identifier: BSD-3-Clause */
/* Wraps a transport and injects the message faults that DIST_FAULT requests. */
#include "transports/faulty/faulty.h"
#include "base/clock.h"
#include "base/faults.h"
#include "base/lock.h"
#include "base/log.h"

#include <dist/transport.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

/*
 * A send that is delayed or altered. The engine's request stays in progress; once `started`, the
 * inner transport sends `sent` in its place.
 */
struct faulty_send {
    struct faulty_send *next;
    struct dist_request *request; /* the engine's */
    bool started;                 /* `sent` was posted to the inner transport */
    int64_t until_ns;             /* do not start it before this time */
    struct dist_request sent;
    unsigned char data[]; /* the altered copy of the payload, if a bit is flipped */
};

/* Stored after the inner transport's state, in the same allocation; starts as all zero. */
struct faulty_state {
    struct faulty_send *sends; /* in the order in which the engine posted them */
    bool blind;                /* the last arm did not arm the inner transport */
};

/* A wrapped transport: `table` is a copy of *inner with some functions replaced. */
struct faulty_table {
    const struct dist_transport *inner;
    struct dist_transport table;
    size_t at; /* offset of struct faulty_state in the transport's state */
};

/* Not a float's lowest bit, since rounding in a sum could hide the change. */
#define FAULTY_BIT 0x40

static struct faulty_state *faulty_of(const struct faulty_table *table, void *state)
{
    return (struct faulty_state *)(void *)((char *)state + table->at);
}

static struct faulty_send *faulty_keep(struct faulty_state *faulty, struct dist_request *request,
                                       size_t bytes)
{
    struct faulty_send *send = calloc(1, sizeof(*send) + bytes), **end = &faulty->sends;

    if (!send) {
        request->status = disti_fail(DIST_ERR_NO_MEMORY, "DIST_FAULT: no memory for a message");
        return NULL;
    }
    send->request = request;
    send->sent = *request;
    while (*end)
        end = &(*end)->next;
    *end = send;
    return send;
}

static void faulty_start(const struct faulty_table *table, void *state, struct faulty_send *send)
{
    send->started = true;
    table->inner->send(state, &send->sent);
}

/*
 * DELAY: sends the message after delay_ns at the earliest. TRUNCATE: sends its first half. FLIP:
 * sends a copy with one bit flipped in the middle.
 */
static void faulty_break(const struct faulty_table *table, void *state,
                         struct dist_request *request, enum disti_fault_kind kind, int64_t delay_ns)
{
    size_t bytes = kind == DISTI_FAULT_FLIP ? (size_t)request->envelope.bytes : 0;
    struct faulty_send *send = faulty_keep(faulty_of(table, state), request, bytes);

    if (!send)
        return;
    if (kind == DISTI_FAULT_DELAY) {
        send->until_ns = disti_now_ns() + delay_ns;
        return;
    }
    if (kind == DISTI_FAULT_TRUNCATE)
        send->sent.envelope.bytes /= 2;
    if (bytes) {
        memcpy(send->data, request->data, bytes);
        send->data[bytes / 2] ^= FAULTY_BIT;
        send->sent.data = send->data;
        disti_faults_flip(send->data);
    }
    faulty_start(table, state, send);
}

static void faulty_send(const struct faulty_table *table, void *state, struct dist_request *request)
{
    const struct disti_fault *fault = disti_faults_at_message();
    enum disti_fault_kind kind = fault ? fault->kind : DISTI_FAULT_NONE;
    /* A send to the same rank that has not started; this one must not overtake it. */
    const struct faulty_send *before = faulty_of(table, state)->sends;
    bool late;

    while (before && (before->started || before->request->peer != request->peer))
        before = before->next;
    late = kind == DISTI_FAULT_DELAY || before;
    if (fault)
        disti_info("DIST_FAULT breaks a message of %zu bytes to rank %d",
                   (size_t)request->envelope.bytes, request->peer);
    if (kind == DISTI_FAULT_DROP)
        request->status = DIST_OK;
    else if (kind == DISTI_FAULT_RESET)
        request->status = disti_fail(DIST_ERR_PEER_LOST,
                                     "rank %d: DIST_FAULT has reset the connection to rank %d",
                                     disti_faults_own_rank(), request->peer);
    else if (!late && kind != DISTI_FAULT_TRUNCATE && kind != DISTI_FAULT_FLIP)
        table->inner->send(state, request);
    else
        faulty_break(table, state, request, late ? DISTI_FAULT_DELAY : kind,
                     fault ? fault->time_ns : 0);
}

/* Returns true if the send is due and all earlier sends to the same rank have started. */
static bool faulty_may_start(const struct faulty_state *faulty, const struct faulty_send *send,
                             int64_t now)
{
    const struct faulty_send *before = faulty->sends;

    while (before != send && (before->started || before->request->peer != send->request->peer))
        before = before->next;
    return before == send && now >= send->until_ns;
}

/* Also starts the sends that are due and completes the engine's requests of completed sends. */
static int faulty_progress(const struct faulty_table *table, void *state)
{
    struct faulty_state *faulty = faulty_of(table, state);
    int moved = table->inner->progress(state);
    int64_t now = faulty->sends ? disti_now_ns() : 0;

    for (struct faulty_send **at = &faulty->sends; *at && moved >= 0;) {
        struct faulty_send *send = *at;

        if (!send->started && faulty_may_start(faulty, send, now)) {
            faulty_start(table, state, send);
            moved++;
        }
        if (!send->started || send->sent.status == DIST_IN_PROGRESS) {
            at = &send->next;
            continue;
        }
        *at = send->next;
        send->request->status = send->sent.status;
        free(send);
        moved++;
    }
    return moved;
}

/* Refuses to arm while there are delayed or altered sends: no event would wake the caller. */
static int faulty_arm(const struct faulty_table *table, void *state)
{
    struct faulty_state *faulty = faulty_of(table, state);

    faulty->blind = faulty->sends;
    return faulty->blind ? -1 : table->inner->arm(state);
}

static void faulty_disarm(const struct faulty_table *table, void *state)
{
    if (!faulty_of(table, state)->blind)
        table->inner->disarm(state);
}

static void faulty_drop(struct faulty_state *faulty, uint64_t tag, uint64_t mask)
{
    for (struct faulty_send **at = &faulty->sends; *at;) {
        struct faulty_send *send = *at;

        if ((send->sent.envelope.tag & mask) != tag) {
            at = &send->next;
            continue;
        }
        *at = send->next;
        free(send);
    }
}

/*
 * One table for each wrapped transport. A transport's functions do not receive their table, so each
 * table has its own functions.
 */

#define TABLES_EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define TABLES 8

DISTI_PROCESS_LOCK(tables_lock);
static struct faulty_table tables[TABLES];

#define TABLES_FUNCTIONS(i)                                                                        \
    static void tables_send_##i(void *state, struct dist_request *request)                         \
    {                                                                                              \
        faulty_send(&tables[i], state, request);                                                   \
    }                                                                                              \
    static int tables_progress_##i(void *state)                                                    \
    {                                                                                              \
        return faulty_progress(&tables[i], state);                                                 \
    }                                                                                              \
    static int tables_arm_##i(void *state)                                                         \
    {                                                                                              \
        return faulty_arm(&tables[i], state);                                                      \
    }                                                                                              \
    static void tables_disarm_##i(void *state)                                                     \
    {                                                                                              \
        faulty_disarm(&tables[i], state);                                                          \
    }                                                                                              \
    static void tables_close_##i(void *state)                                                      \
    {                                                                                              \
        tables[i].inner->close(state); /* first, since it may access requests */                   \
        faulty_drop(faulty_of(&tables[i], state), 0, 0);                                           \
    }                                                                                              \
    static void tables_cancel_##i(void *state, uint64_t tag, uint64_t mask)                        \
    {                                                                                              \
        tables[i].inner->cancel(state, tag, mask);                                                 \
        faulty_drop(faulty_of(&tables[i], state), tag, mask);                                      \
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

const struct dist_transport *disti_transport_faulty(const struct dist_transport *transport)
{
    const struct dist_transport *faulty = transport;
    const size_t align = alignof(max_align_t);
    int i = 0;

    if (!transport || !disti_faults_need_messages())
        return transport;
    pthread_mutex_lock(&tables_lock);
    while (i < TABLES && tables[i].inner && tables[i].inner != transport &&
           &tables[i].table != transport)
        i++;
    if (i < TABLES) {
        const struct dist_transport *own = &tables_own[i];
        struct faulty_table *table = &tables[i];

        if (!table->inner) {
            table->at = (transport->state_size + align - 1) / align * align;
            table->table = *transport;
            table->table.state_size = table->at + sizeof(struct faulty_state);
            table->table.send = own->send;
            table->table.progress = own->progress;
            table->table.arm = own->arm;
            table->table.disarm = own->disarm;
            table->table.close = own->close;
            if (transport->cancel)
                table->table.cancel = own->cancel;
            table->inner = transport;
        }
        faulty = &table->table;
    }
    pthread_mutex_unlock(&tables_lock);
    return faulty;
}
