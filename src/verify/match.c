/* SPDX-License-Identifier: BSD-3-Clause */
/* Which SEND meets which RECV: messages of two ranks on one channel stay in order. */
#include "verify/internal.h"

#include <stdlib.h>

static int match_compare(const void *left, const void *right)
{
    const struct verify_message *a = left, *b = right;
    const uint32_t keys[][2] = {
        {a->from, b->from}, {a->to, b->to}, {a->channel, b->channel}, {a->number, b->number}};
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return 0;
}

static bool match_same_data(const struct verify *v, uint32_t one, uint32_t other)
{
    uint32_t items = verify_step(v, one)->items;
    bool same = verify_step(v, other)->items == items;
    for (uint32_t i = 0; i < items && same; i++)
        same = verify_items(v, one)[i].chunk == verify_items(v, other)[i].chunk;
    return same;
}

static bool match_pair(struct verify *v, uint32_t send, uint32_t recv)
{
    if (!match_same_data(v, recv, send)) {
        char text[128];
        disti_verify_describe(v, send, text, sizeof(text));
        return disti_verify_fault(v, recv, "expects %u chunks, but meets %u of %s",
                                  verify_step(v, recv)->items, verify_step(v, send)->items, text);
    }
    verify_step(v, send)->match = recv;
    verify_step(v, recv)->match = send;
    return true;
}

static struct verify_message *match_sort(struct verify_list *messages)
{
    if (messages->count > 0)
        qsort(messages->items, messages->count, messages->size, match_compare);
    return messages->items;
}

/* Sorted alike, the k-th of the sends must be the k-th of the receives. */
bool disti_verify_match(struct verify *v)
{
    const struct verify_message *send = match_sort(&v->sends), *recv = match_sort(&v->recvs);
    size_t sends = v->sends.count, recvs = v->recvs.count;
    for (; sends > 0 || recvs > 0; sends--, recvs--, send++, recv++) {
        int order = sends == 0 ? 1 : recvs == 0 ? -1 : match_compare(send, recv);
        if (order > 0)
            return disti_verify_fault(v, recv->step, "no rank sends to it");
        if (order < 0)
            return disti_verify_fault(v, send->step, "nobody receives it");
        if (!match_pair(v, send->step, recv->step))
            return false;
    }
    return true;
}
