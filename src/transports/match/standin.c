/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests that take the place of forgotten ones, shared by the transports. */
#include "transports/match/standin.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

struct disti_standin {
    struct disti_standin *next;
    struct dist_request request;
    char data[];
};

static struct disti_standin *standin_new(struct disti_standins *standins,
                                         const struct dist_request *request, size_t data_bytes)
{
    struct disti_standin *standin;
    size_t bytes;

    if (!disti_add(sizeof(*standin), data_bytes, &bytes))
        return NULL;
    standin = malloc(bytes);
    if (!standin)
        return NULL;
    standin->request = *request;
    standin->next = standins->head;
    standins->head = standin;
    return standin;
}

/* The bytes before `from` are not there, but nobody reads them: data begins where they would. */
struct dist_request *disti_standin_send(struct disti_standins *standins,
                                        const struct dist_request *request, size_t from)
{
    size_t bytes = (size_t)request->envelope.bytes - from;
    struct disti_standin *standin = standin_new(standins, request, bytes);

    if (!standin)
        return NULL;
    if (bytes)
        memcpy(standin->data, (const char *)request->data + from, bytes);
    standin->request.data = (const void *)((uintptr_t)standin->data - from);
    return &standin->request;
}

struct dist_request *disti_standin_receive(struct disti_standins *standins,
                                           const struct dist_request *request)
{
    struct disti_standin *standin = standin_new(standins, request, 0);

    if (!standin)
        return NULL;
    standin->request.sink = (struct dist_sink){.bytes = request->sink.bytes};
    return &standin->request;
}

void disti_standin_unpost(struct disti_match *match, uint64_t tag, uint64_t mask)
{
    for (struct dist_request *request = match->posted_head, *next; request; request = next) {
        next = request->next;
        if (disti_standin_is_for(request, tag, mask))
            disti_match_unpost(match, request);
    }
}

bool disti_standins_have(const struct disti_standins *standins, const struct dist_request *request)
{
    const struct disti_standin *standin = standins->head;

    while (standin && &standin->request != request)
        standin = standin->next;
    return standin;
}

void disti_standins_sweep(struct disti_standins *standins)
{
    struct disti_standin **at = &standins->head;

    while (*at) {
        struct disti_standin *standin = *at;

        if (standin->request.status == DIST_IN_PROGRESS) {
            at = &standin->next;
            continue;
        }
        *at = standin->next;
        free(standin);
    }
}

void disti_standins_free(struct disti_standins *standins)
{
    while (standins->head) {
        struct disti_standin *standin = standins->head;

        standins->head = standin->next;
        free(standin);
    }
}
