/* SPDX-License-Identifier: BSD-3-Clause */
/* Which SEND meets which RECV: messages of two ranks on one channel stay in order. */
#include "verify/internal.h"

#include <stdlib.h>
#include <string.h>

/* A message is about each chunk once. */
bool disti_verify_lists(struct verify *v, dist_status *status_p)
{
    uint32_t *seen = disti_verify_array(v->data_chunks, sizeof(*seen));
    if (!seen) {
        *status_p = DIST_ERR_NO_MEMORY;
        return false;
    }
    bool good = true;
    for (uint32_t step = 0; step < v->step_count && good; step++) {
        for (uint32_t i = 0; i < v->steps[step]->chunks && good; i++) {
            uint32_t *last = &seen[disti_verify_data(v, step, i)];
            if (*last == step + 1)
                good = disti_verify_fault(v, step, "its data has chunk %u twice",
                                          disti_verify_data(v, step, i));
            *last = step + 1;
        }
    }
    free(seen);
    return good;
}

/* The pair of ranks and channel on which a step's message travels. */
static size_t match_wire(const struct verify *v, uint32_t step, size_t channels)
{
    const struct verify_lane *lane = &v->lanes[v->lane_of[step]];
    const struct disti_step *s = v->steps[step];
    const struct disti_plan *plan = v->plans[lane->rank];
    int from = s->kind == DISTI_SEND ? lane->rank : s->peer;
    int to = s->kind == DISTI_SEND ? s->peer : lane->rank;
    size_t channel = plan->lanes[v->lane_of[step] - v->rank[lane->rank].first_lane].channel;
    return ((size_t)from * (size_t)v->ranks + (size_t)to) * channels + channel;
}

static size_t match_channels(const struct verify *v)
{
    size_t channels = 1;
    for (int rank = 0; rank < v->ranks; rank++)
        for (uint32_t l = 0; l < v->plans[rank]->lane_count; l++)
            if (v->plans[rank]->lanes[l].channel >= channels)
                channels = v->plans[rank]->lanes[l].channel + 1u;
    return channels;
}

static bool match_same_data(const struct verify *v, uint32_t one, uint32_t other)
{
    uint32_t chunks = v->steps[one]->chunks;
    bool same = v->steps[other]->chunks == chunks;
    for (uint32_t i = 0; i < chunks && same; i++)
        same = disti_verify_data(v, one, i) == disti_verify_data(v, other, i);
    return same;
}

/* The receives take the sends of their wire in turn: next[wire] is the one whose turn it is. */
static bool match_receives(struct verify *v, size_t channels, uint32_t *next, const uint32_t *after)
{
    for (uint32_t step = 0; step < v->step_count; step++) {
        const struct disti_step *s = v->steps[step];
        if (s->kind != DISTI_RECV && s->kind != DISTI_RECV_REDUCE)
            continue;
        uint32_t *turn = &next[match_wire(v, step, channels)], send = *turn;
        if (send == VERIFY_NONE)
            return disti_verify_fault(v, step, "no rank sends to it");
        if (!match_same_data(v, step, send)) {
            char text[128];
            disti_verify_describe(v, send, text, sizeof(text));
            return disti_verify_fault(v, step, "expects %u chunks, but meets %u of %s", s->chunks,
                                      v->steps[send]->chunks, text);
        }
        v->match[step] = send;
        v->match[send] = step;
        *turn = after[send];
    }
    return true;
}

/* Messages of one wire stay in order, so who meets whom is known before anything runs. */
bool disti_verify_match(struct verify *v, dist_status *status_p)
{
    size_t channels = match_channels(v);
    size_t wires = (size_t)v->ranks * (size_t)v->ranks * channels;
    uint32_t *head = malloc(wires * sizeof(*head)), *tail = malloc(wires * sizeof(*tail));
    uint32_t *after = disti_verify_array(v->step_count, sizeof(*after));
    bool good = head && tail && after;
    if (!good) {
        *status_p = DIST_ERR_NO_MEMORY;
        goto out;
    }
    memset(head, 0xff, wires * sizeof(*head)); /* VERIFY_NONE */
    for (uint32_t step = 0; step < v->step_count; step++) {
        v->match[step] = after[step] = VERIFY_NONE;
        if (v->steps[step]->kind != DISTI_SEND)
            continue;
        size_t wire = match_wire(v, step, channels);
        *(head[wire] == VERIFY_NONE ? &head[wire] : &after[tail[wire]]) = step;
        tail[wire] = step;
        v->verdict->messages++;
        v->verdict->chunks_sent += v->steps[step]->chunks;
    }
    good = match_receives(v, channels, head, after);
    for (uint32_t step = 0; step < v->step_count && good; step++)
        if (v->steps[step]->kind == DISTI_SEND && v->match[step] == VERIFY_NONE)
            good = disti_verify_fault(v, step, "nobody receives it");
out:
    free(head);
    free(tail);
    free(after);
    return good;
}
