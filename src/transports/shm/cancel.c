/* SPDX-License-Identifier: BSD-3-Clause */
/* Forgetting the messages of a group that has ended, while others go on. */
#include "base/log.h"
#include "transports/shm/connection.h"

#include <errno.h>

/*
 * What has not begun is taken out. What is halfway goes on with a stand-in. What this rank has lent
 * to the peer is taken back: the peer is told by a bit that what it reads may be anything.
 */
struct cancel {
    struct shm_state *state;
    struct shm_peer *peer;
    uint64_t tag, mask;
    bool failed; /* no memory for a stand-in */
};

static bool cancel_means(const struct cancel *cancel, const struct dist_request *request)
{
    return disti_standin_is_for(request, cancel->tag, cancel->mask) &&
           !disti_standins_have(&cancel->state->standins, request);
}

/* The request that takes the place; NULL: none does. */
static struct dist_request *cancel_replace(struct cancel *cancel,
                                           const struct dist_request *request, bool send)
{
    struct disti_standins *standins = &cancel->state->standins;
    bool copies = send && request->own[0] != SHM_SEND_UNREADABLE;
    struct dist_request *standin = copies ? disti_standin_send(standins, request, request->moved)
                                          : disti_standin_receive(standins, request);

    cancel->failed = cancel->failed || !standin;
    return standin;
}

/* A list through `next`. */
static void cancel_list(struct cancel *cancel, struct dist_request **head,
                        struct dist_request **tail, bool send)
{
    struct dist_request **at = head, *last = NULL;

    while (*at) {
        struct dist_request *request = *at, *standin = NULL;
        bool begun = !send || request->moved || request->own[0];

        if (cancel_means(cancel, request)) {
            if (begun)
                standin = cancel_replace(cancel, request, send);
            *at = standin ? standin : request->next;
            if (!standin)
                continue;
            standin->next = request->next;
        }
        last = *at;
        at = &(*at)->next;
    }
    *tail = last;
}

static void cancel_announced(struct cancel *cancel)
{
    struct disti_announced *announced = &cancel->peer->announced;

    for (uint32_t name = 0; name < announced->room; name++) {
        struct dist_request **at = (struct dist_request **)disti_announced_slot(announced, name);

        if (at && cancel_means(cancel, *at))
            *at = cancel_replace(cancel, *at, true);
    }
}

static void cancel_lent(struct cancel *cancel)
{
    struct shm_peer *peer = cancel->peer;

    for (int id = 0; id < SHM_LENT_MAX; id++) {
        struct dist_request *request = peer->lent[id];

        if (!request || !cancel_means(cancel, request))
            continue;
        peer->lent[id] = cancel_replace(cancel, request, false);
        atomic_fetch_or(&peer->mine->taken_back, UINT64_C(1) << id);
    }
}

static void cancel_arrival(struct cancel *cancel)
{
    struct shm_arrival *arrival = &cancel->peer->arrival;

    if (arrival->request && cancel_means(cancel, arrival->request))
        arrival->request = NULL;
}

/* Messages that nobody has received. */
static void cancel_unexpected(struct cancel *cancel)
{
    struct shm_peer *peer = cancel->peer;

    for (struct disti_unexpected *unexpected = peer->match.unexpected_head, *next; unexpected;
         unexpected = next) {
        next = unexpected->next;
        if ((unexpected->envelope.tag & cancel->mask) == cancel->tag)
            disti_shm_receive_refuse(peer, unexpected);
    }
}

static void cancel_peer(struct cancel *cancel)
{
    struct shm_peer *peer = cancel->peer;

    disti_standin_unpost(&peer->match, cancel->tag, cancel->mask);
    cancel_arrival(cancel);
    cancel_unexpected(cancel);
    cancel_list(cancel, &peer->send_head, &peer->send_tail, true);
    cancel_list(cancel, &peer->asked_head, &peer->asked_tail, false);
    cancel_list(cancel, &peer->pull_head, &peer->pull_tail, false);
    cancel_announced(cancel);
    if (peer->mine)
        cancel_lent(cancel);
    if (!cancel->failed)
        return;
    errno = ENOMEM;
    disti_fail_errno(DIST_ERR_NO_MEMORY, "shm: rank %d cannot forget messages with rank %d",
                     cancel->state->config.rank, peer->rank);
    disti_shm_connection_lose(cancel->state, peer, DIST_ERR_NO_MEMORY);
}

void disti_shm_cancel(void *opaque, uint64_t tag, uint64_t mask)
{
    struct shm_state *state = opaque;

    for (int rank = 0; rank < state->config.world_size; rank++) {
        struct cancel cancel = {
            .state = state, .peer = state->peers[rank], .tag = tag, .mask = mask};

        if (cancel.peer)
            cancel_peer(&cancel);
    }
    disti_standins_sweep(&state->standins);
}
