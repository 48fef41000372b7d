/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests that take the place of forgotten ones, shared by the transports. */
#ifndef DISTI_TRANSPORTS_MATCH_STANDIN_H
#define DISTI_TRANSPORTS_MATCH_STANDIN_H

#include "transports/match/match.h"

/*
 * A group that ends takes its memory with it, but the message that is halfway through a stream has
 * to go on to its end, since others follow it. So a request that the engine wants forgotten is
 * replaced wherever the transport keeps it: a send by one with a copy of what is still to be sent,
 * a receive by one that throws away what comes. Nobody waits for such a stand-in.
 */
struct disti_standin;

/* The stand-ins of one transport. All zero at first. */
struct disti_standins {
    struct disti_standin *head;
};

static inline bool disti_standin_is_for(const struct dist_request *request, uint64_t tag,
                                        uint64_t mask)
{
    return (request->envelope.tag & mask) == tag;
}

/*
 * The stand-in of a request; the caller puts it in its place. Of a send, data from byte `from` on
 * are copied. NULL: out of memory.
 */
struct dist_request *disti_standin_send(struct disti_standins *standins,
                                        const struct dist_request *request, size_t from);
struct dist_request *disti_standin_receive(struct disti_standins *standins,
                                           const struct dist_request *request);

/* Takes the posted receives whose tag is `tag` in the bits of `mask` off the list. */
void disti_standin_unpost(struct disti_match *match, uint64_t tag, uint64_t mask);

bool disti_standins_have(const struct disti_standins *standins, const struct dist_request *request);

/* sweep frees the stand-ins that have ended; free frees all, once nobody touches them any more. */
void disti_standins_sweep(struct disti_standins *standins);
void disti_standins_free(struct disti_standins *standins);

#endif
