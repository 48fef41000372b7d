/* SPDX-License-Identifier: BSD-3-Clause */
/* Credit for messages that come before their receives, and asking for those that have none. */
#include "transports/tcp/credit.h"

#include "base/settings/config.h"
#include "transports/tcp/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Credit of one peer; of all together, but no less than that of each. */
#define CREDIT_EACH ((size_t)16 << 20)
#define CREDIT_ALL ((size_t)256 << 20)
#define CREDIT_LEAST ((size_t)1 << 20)
/* Given back when this share of all is owed: seldom, and long before the sender has none left. */
#define CREDIT_SHARE 4

dist_status disti_tcp_credit_setting(struct tcp_state *state)
{
    size_t each = CREDIT_EACH;

    if (state->world_size > 1 && CREDIT_ALL / (size_t)(state->world_size - 1) < each)
        each = CREDIT_ALL / (size_t)(state->world_size - 1);
    return disti_env_bytes("DIST_TCP_EARLY_LIMIT", each < CREDIT_LEAST ? CREDIT_LEAST : each,
                           &state->unexpected_limit);
}

void disti_tcp_credit_open(const struct tcp_state *state, struct tcp_peer *peer, uint64_t granted)
{
    peer->credit = (struct tcp_credit){.granted = granted,
                                       .left = granted,
                                       .limit = state->unexpected_limit,
                                       .unused = state->unexpected_limit};
}

bool disti_tcp_credit_came(struct tcp_peer *peer, uint64_t bytes)
{
    struct tcp_credit *credit = &peer->credit;

    if (bytes > credit->granted - credit->left)
        return false;
    credit->left += bytes;
    return true;
}

dist_status disti_tcp_ask(struct tcp_peer *peer, uint64_t number, bool refused)
{
    struct tcp_control *control = &peer->control;
    struct tcp_ask *ask = malloc(sizeof(*ask));

    if (!ask)
        return DIST_ERR_NO_MEMORY;
    *ask = (struct tcp_ask){.number = number, .refused = refused};
    if (control->head)
        control->tail->next = ask;
    else
        control->head = ask;
    control->tail = ask;
    return DIST_OK;
}

static bool control_owes(const struct tcp_peer *peer)
{
    return peer->credit.owed && peer->credit.owed >= peer->credit.limit / CREDIT_SHARE;
}

bool disti_tcp_control_waits(const struct tcp_peer *peer)
{
    const struct tcp_control *control = &peer->control;

    return control->begin != control->end || control->head || control_owes(peer);
}

bool disti_tcp_can_control(const struct tcp_peer *peer)
{
    return disti_tcp_control_waits(peer) && disti_tcp_conn_sends(peer->conn) &&
           peer->conn->writable && !disti_tcp_first_begun(peer);
}

static void control_add(struct tcp_peer *peer, enum disti_tcp_kind kind, uint64_t value,
                        bool refused)
{
    struct tcp_control *control = &peer->control;
    struct dist_envelope frame = {.tag = value, .fingerprint = refused};

    disti_tcp_frame_encode(kind, &frame, control->bytes + control->end);
    disti_tcp_seal(peer, control->bytes + control->end, NULL, 0, 0);
    control->end += DISTI_TCP_FRAME_BYTES;
}

/* The frames before have all been sent. */
static void control_fill(struct tcp_peer *peer)
{
    struct tcp_control *control = &peer->control;

    control->begin = control->end = 0;
    if (control_owes(peer)) {
        control_add(peer, DISTI_TCP_CREDIT, peer->credit.owed, false);
        peer->credit.unused += peer->credit.owed;
        peer->credit.owed = 0;
    }
    while (control->head && control->end < sizeof(control->bytes)) {
        struct tcp_ask *ask = control->head;

        control_add(peer, DISTI_TCP_ASK, ask->number, ask->refused);
        control->head = ask->next;
        free(ask);
    }
}

bool disti_tcp_control(struct tcp_state *state, struct tcp_peer *peer)
{
    struct tcp_control *control = &peer->control;
    bool any = false;

    while (disti_tcp_can_control(peer)) {
        ssize_t sent;

        if (control->begin == control->end)
            control_fill(peer);
        do {
            sent =
                disti_tls_or_send(peer->conn->tls, peer->conn->fd, control->bytes + control->begin,
                                  control->end - control->begin);
        } while (sent < 0 && errno == EINTR);
        if (sent < 0 && (errno == ENOBUFS || errno == ENOMEM))
            return any;
        if (sent < 0 && errno != EAGAIN) {
            disti_tcp_send_broken(state, peer->conn, errno);
            return true;
        }
        control->begin += sent > 0 ? (size_t)sent : 0;
        any |= sent > 0;
        if (control->begin < control->end)
            disti_tcp_conn_set_writable(state, peer->conn, false);
        else if (!control->head)
            disti_tcp_control_end(peer, DIST_OK);
    }
    return any;
}

void disti_tcp_control_end(struct tcp_peer *peer, dist_status status)
{
    struct dist_request *request = peer->control.receives;

    peer->control.receives = NULL;
    while (request) {
        struct dist_request *next = request->next;

        request->status = status;
        request = next;
    }
}

void disti_tcp_control_clear(struct tcp_peer *peer)
{
    struct tcp_control *control = &peer->control;

    while (control->head) {
        struct tcp_ask *ask = control->head;

        control->head = ask->next;
        free(ask);
    }
    control->begin = control->end = 0;
}
