/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends with a fault. */
#include "base/clock.h"
#include "base/faults/faults.h"
#include "base/log.h"
#include "transports/faulty/state.h"

#include <stdlib.h>
#include <string.h>

/* Not the lowest bit of a float, which a sum may swallow. */
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

/* ---- the faults ---- */

static void faulty_delay(struct faulty_state *faulty, struct dist_request *request, int64_t ns)
{
    struct faulty_send *send = faulty_keep(faulty, request, 0);

    if (send)
        send->until_ns = disti_now_ns() + ns;
}

static void faulty_truncate(const struct faulty_table *table, void *state,
                            struct dist_request *request)
{
    struct faulty_send *send = faulty_keep(faulty_of(table, state), request, 0);

    if (!send)
        return;
    send->sent.envelope.bytes /= 2;
    faulty_start(table, state, send);
}

/* One bit in the middle. */
static void faulty_flip(const struct faulty_table *table, void *state, struct dist_request *request)
{
    size_t bytes = request->envelope.bytes;
    struct faulty_send *send = faulty_keep(faulty_of(table, state), request, bytes);

    if (!send)
        return;
    if (bytes) {
        memcpy(send->data, request->data, bytes);
        send->data[bytes / 2] ^= FAULTY_BIT;
        send->sent.data = send->data;
        disti_faults_flip(send->data);
    }
    faulty_start(table, state, send);
}

/* Messages to one rank keep their order. */
static bool faulty_is_behind(const struct faulty_state *faulty, int peer)
{
    const struct faulty_send *send = faulty->sends;

    while (send && (send->started || send->request->peer != peer))
        send = send->next;
    return send;
}

void disti_faulty_send(const struct faulty_table *table, void *state, struct dist_request *request)
{
    const struct disti_fault *fault = disti_faults_at_message();
    enum disti_fault_kind kind = fault ? fault->kind : DISTI_FAULT_NONE;
    struct faulty_state *faulty = faulty_of(table, state);

    if (fault)
        disti_info("DIST_FAULT breaks a message of %zu bytes to rank %d",
                   (size_t)request->envelope.bytes, request->peer);
    if (kind == DISTI_FAULT_DROP)
        request->status = DIST_OK;
    else if (kind == DISTI_FAULT_RESET)
        request->status = disti_fail(DIST_ERR_PEER_LOST,
                                     "rank %d: DIST_FAULT has reset the connection to rank %d",
                                     disti_faults_own_rank(), request->peer);
    else if (kind == DISTI_FAULT_DELAY || faulty_is_behind(faulty, request->peer))
        faulty_delay(faulty, request, fault ? fault->time_ns : 0);
    else if (kind == DISTI_FAULT_TRUNCATE)
        faulty_truncate(table, state, request);
    else if (kind == DISTI_FAULT_FLIP)
        faulty_flip(table, state, request);
    else
        table->inner->send(state, request);
}

/* ---- the slots that see to the sends that are kept ---- */

static bool faulty_may_start(const struct faulty_state *faulty, const struct faulty_send *send,
                             int64_t now)
{
    const struct faulty_send *before = faulty->sends;

    while (before != send && (before->started || before->request->peer != send->request->peer))
        before = before->next;
    return before == send && now >= send->until_ns;
}

/* Starts what is due, and ends what has ended. */
int disti_faulty_progress(const struct faulty_table *table, void *state)
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

/* While messages are held back nothing would wake the caller for them. */
int disti_faulty_arm(const struct faulty_table *table, void *state)
{
    struct faulty_state *faulty = faulty_of(table, state);

    faulty->blind = faulty->sends;
    return faulty->blind ? -1 : table->inner->arm(state);
}

void disti_faulty_disarm(const struct faulty_table *table, void *state)
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

void disti_faulty_close(const struct faulty_table *table, void *state)
{
    table->inner->close(state); /* first: from here on it touches no request */
    faulty_drop(faulty_of(table, state), 0, 0);
}

void disti_faulty_cancel(const struct faulty_table *table, void *state, uint64_t tag, uint64_t mask)
{
    table->inner->cancel(state, tag, mask);
    faulty_drop(faulty_of(table, state), tag, mask);
}
