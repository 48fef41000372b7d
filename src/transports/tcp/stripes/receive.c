/* SPDX-License-Identifier: BSD-3-Clause */
/* Receiving in stripes: messages that are put together from several sockets. */
#include "base/kernels/sink.h"
#include "transports/tcp/state.h"

#include <errno.h>
#include <stdlib.h>

bool disti_tcp_assemble(struct tcp_peer *peer, uint64_t number, uint64_t bytes,
                        struct dist_request *request, struct disti_unexpected *unexpected)
{
    struct tcp_rails *rails = peer->rails;
    struct tcp_assembly **end = &peer->stripes.assemblies;
    struct tcp_assembly *assembly = malloc(sizeof(*assembly));

    if (!assembly)
        return false;
    *assembly = (struct tcp_assembly){.number = number,
                                      .bytes = bytes,
                                      .unseen = bytes,
                                      .left = bytes,
                                      .costs = !request && !unexpected,
                                      .request = request,
                                      .unexpected = unexpected};
    while (*end)
        end = &(*end)->next;
    *end = assembly;
    for (int i = 1; rails && i < DISTI_TCP_SOCKETS; i++) {
        struct tcp_rail *rail = &rails->rail[i];

        rail->resume = rail->resume || rail->waiting;
        rail->waiting = false;
    }
    return true;
}

enum tcp_stripe_answer disti_tcp_stripe_begin(struct tcp_peer *peer, struct tcp_incoming *in,
                                              const struct dist_envelope *frame)
{
    struct tcp_assembly *assembly = peer->stripes.assemblies;

    if (frame->tag >= peer->stripes.arrived)
        return TCP_STRIPE_WAIT;
    while (assembly && assembly->number != frame->tag)
        assembly = assembly->next;
    if (!assembly || frame->bytes > assembly->unseen ||
        !disti_tcp_stripe_fits(assembly->bytes, frame->fingerprint, frame->bytes))
        return TCP_STRIPE_BAD;
    assembly->unseen -= frame->bytes;
    in->active = true;
    in->assembly = assembly;
    in->at = frame->fingerprint;
    in->left = in->stripe = frame->bytes;
    in->request = assembly->request;
    in->unexpected = assembly->unexpected;
    return TCP_STRIPE_OK;
}

/* All of it is here: it ends its receive, if there is one yet. */
static void assembly_whole(struct tcp_peer *peer, struct tcp_assembly *assembly)
{
    struct disti_unexpected *unexpected = assembly->unexpected;
    struct dist_request *request = unexpected ? unexpected->claimed : assembly->request;

    if (assembly->costs)
        disti_tcp_give_back(&peer->credit, assembly->bytes);
    if (unexpected && request) {
        disti_sink_apply(&request->sink, 0, unexpected->payload, (size_t)assembly->bytes);
        disti_tcp_unexpected_release(peer, unexpected);
    }
    if (request) {
        request->status = DIST_OK;
        peer->finished = true;
    }
}

void disti_tcp_stripe_end(struct tcp_peer *peer, struct tcp_incoming *in)
{
    struct tcp_assembly **at = &peer->stripes.assemblies, *assembly = in->assembly;

    assembly->left -= in->stripe;
    in->active = false;
    in->assembly = NULL;
    in->request = NULL;
    in->unexpected = NULL;
    if (assembly->left)
        return;
    while (*at != assembly)
        at = &(*at)->next;
    *at = assembly->next;
    assembly_whole(peer, assembly);
    free(assembly);
}

/* A header lies in the stash and could not be used: its message is not announced yet. */
static void rail_look(const struct tcp_peer *peer, struct tcp_rail *rail)
{
    rail->waiting = peer->phase == TCP_PHASE_UP && !rail->in.active &&
                    rail->in.stash_bytes >= DISTI_TCP_FRAME_BYTES;
}

/* One socket's turn. */
static size_t rail_receive(struct tcp_state *state, struct tcp_peer *peer, struct tcp_rail *rail)
{
    size_t moved = 0;

    if (rail->resume) {
        rail->resume = false;
        disti_tcp_use_stash(state, peer, &rail->in);
        rail_look(peer, rail);
        moved++;
    }
    while (peer->phase == TCP_PHASE_UP && !rail->waiting && moved < TCP_TURN_BYTES) {
        bool full = false;
        ssize_t got = disti_tcp_read(state, peer, rail->fd, &rail->in, &full);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN) {
            rail->readable = false;
            break;
        }
        if (got <= 0) {
            disti_tcp_rail_ended(state, peer, rail, got ? errno : 0);
            return moved + 1;
        }
        moved += (size_t)got;
        rail_look(peer, rail);
        if (!full && !peer->rails->deadline) {
            rail->readable = false;
            break;
        }
    }
    return moved;
}

int disti_tcp_rails_receive(struct tcp_state *state, struct tcp_peer *peer, bool guess)
{
    struct tcp_rails *rails = peer->rails;
    size_t moved = 0;

    guess = guess && peer->stripes.assemblies;
    for (int number = 1; number < DISTI_TCP_SOCKETS && peer->phase == TCP_PHASE_UP; number++) {
        struct tcp_rail *rail = &rails->rail[number];

        if (rail->phase == TCP_PHASE_UP &&
            (rail->resume || (!rail->waiting && (rail->readable || guess))))
            moved += rail_receive(state, peer, rail);
    }
    /* The first socket may have been found at its end before. */
    if (moved && rails->deadline)
        peer->readable = true;
    return moved > 0;
}

bool disti_tcp_rails_can_receive(const struct tcp_peer *peer)
{
    for (int number = 1; number < DISTI_TCP_SOCKETS; number++) {
        const struct tcp_rail *rail = &peer->rails->rail[number];

        if (rail->phase == TCP_PHASE_UP && (rail->resume || (rail->readable && !rail->waiting)))
            return true;
    }
    return false;
}

bool disti_tcp_assembles(const struct tcp_peer *peer)
{
    const struct tcp_assembly *assembly = peer->stripes.assemblies;

    while (assembly && !assembly->request &&
           !(assembly->unexpected && assembly->unexpected->claimed))
        assembly = assembly->next;
    return assembly;
}

bool disti_tcp_assembling(const struct tcp_peer *peer, const struct disti_unexpected *unexpected)
{
    const struct tcp_assembly *assembly = peer->stripes.assemblies;

    while (assembly && assembly->unexpected != unexpected)
        assembly = assembly->next;
    return assembly;
}

static void incoming_forget(struct tcp_incoming *in, const struct disti_unexpected *unexpected)
{
    if (in->unexpected == unexpected)
        in->unexpected = NULL;
}

bool disti_tcp_assembly_refused(struct tcp_peer *peer)
{
    struct tcp_assembly *assembly = peer->stripes.assemblies;
    struct disti_unexpected *unexpected;

    while (assembly && !(assembly->unexpected && assembly->unexpected->refused))
        assembly = assembly->next;
    if (!assembly)
        return false;
    unexpected = assembly->unexpected;
    assembly->unexpected = NULL;
    assembly->costs = true;
    incoming_forget(&peer->in, unexpected);
    for (int number = 1; peer->rails && number < DISTI_TCP_SOCKETS; number++)
        incoming_forget(&peer->rails->rail[number].in, unexpected);
    disti_match_release(&peer->match, unexpected);
    return true;
}

void disti_tcp_rail_drain(struct tcp_state *state, struct tcp_peer *peer, struct tcp_rail *rail)
{
    while (rail->phase == TCP_PHASE_UP && peer->phase == TCP_PHASE_UP && !rail->waiting &&
           rail_receive(state, peer, rail) > 0)
        ;
}

bool disti_tcp_rails_drain(struct tcp_state *state, struct tcp_peer *peer, int cause)
{
    struct tcp_rails *rails = peer->rails;

    for (int number = 1; number < DISTI_TCP_SOCKETS && peer->stripes.assemblies; number++)
        disti_tcp_rail_drain(state, peer, &rails->rail[number]);
    if (!peer->stripes.assemblies || !rails->up || peer->phase != TCP_PHASE_UP)
        return peer->phase != TCP_PHASE_UP;
    disti_tcp_rails_end(state, peer, cause);
    peer->readable = peer->hung_up = false;
    return true;
}

void disti_tcp_assemblies_clear(struct tcp_peer *peer)
{
    while (peer->stripes.assemblies) {
        struct tcp_assembly *assembly = peer->stripes.assemblies;

        peer->stripes.assemblies = assembly->next;
        free(assembly);
    }
}

void disti_tcp_assemblies_fail(struct tcp_peer *peer, dist_status status)
{
    struct tcp_stripes *stripes = &peer->stripes;

    while (stripes->assemblies) {
        struct tcp_assembly *assembly = stripes->assemblies;
        struct disti_unexpected *unexpected = assembly->unexpected;
        struct dist_request *request = unexpected ? unexpected->claimed : assembly->request;

        stripes->assemblies = assembly->next;
        free(assembly);
        if (unexpected)
            disti_tcp_unexpected_release(peer, unexpected);
        if (request)
            request->status = status;
    }
    for (int number = 1; peer->rails && number < DISTI_TCP_SOCKETS; number++)
        disti_tcp_incoming_clear(&peer->rails->rail[number].in);
}
