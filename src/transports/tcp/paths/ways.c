/* SPDX-License-Identifier: BSD-3-Clause */
/* Which interfaces a pair's sockets join, and how a message is cut for them. */
#include "transports/tcp/paths/ways.h"

/*
 * Stripes a socket should get of what is left, so that the faster ones can take more. The last are
 * the smallest: no socket is long at one when the others have nothing more to do.
 */
#define WAYS_STRIPES_EACH 4

uint64_t disti_tcp_stripe_bytes(uint64_t bytes, int sockets, uint64_t offset)
{
    uint64_t each = (bytes - offset) / (uint64_t)(sockets * WAYS_STRIPES_EACH);

    if (each < DISTI_TCP_STRIPE_LEAST)
        each = DISTI_TCP_STRIPE_LEAST;
    if (each > DISTI_TCP_STRIPE_MOST)
        each = DISTI_TCP_STRIPE_MOST;
    each -= each % DISTI_TCP_STRIPE_ALIGN;
    return bytes - offset < each ? bytes - offset : each;
}

bool disti_tcp_stripe_fits(uint64_t bytes, uint64_t offset, uint64_t stripe)
{
    return stripe > 0 && offset < bytes && stripe <= bytes - offset &&
           offset % DISTI_TCP_STRIPE_ALIGN == 0 &&
           (stripe % DISTI_TCP_STRIPE_ALIGN == 0 || stripe == bytes - offset);
}

bool disti_tcp_in_network(const struct disti_tcp_local *local,
                          const struct disti_tcp_endpoint *remote)
{
    for (int bit = 0; bit < local->prefix; bit++) {
        int differ = local->endpoint.host[bit / 8] ^ remote->host[bit / 8];

        if (differ & (0x80 >> bit % 8))
            return false;
    }
    return true;
}

/* What is being put together. Bits of the masks: interfaces that are on a way. */
struct ways_plan {
    const struct disti_tcp_local *local;
    int locals;
    const struct disti_tcp_address *remote;
    struct disti_tcp_way *ways;
    int count;
    unsigned local_used, remote_used;
};

static void ways_add(struct ways_plan *plan, int local, int remote)
{
    if (plan->count == DISTI_TCP_INTERFACES)
        return;
    plan->ways[plan->count++] = (struct disti_tcp_way){local, remote};
    plan->local_used |= 1u << local;
    plan->remote_used |= 1u << remote;
}

/* Joins each pair of one network of which `local` or `remote`, or each of both, is on no way yet.
 */
static void ways_join(struct ways_plan *plan, bool local_new, bool remote_new)
{
    for (int l = 0; l < plan->locals; l++) {
        for (int r = 0; r < plan->remote->interfaces; r++) {
            if ((local_new && plan->local_used >> l & 1) ||
                (remote_new && plan->remote_used >> r & 1) ||
                !disti_tcp_in_network(&plan->local[l], &plan->remote->endpoint[r]))
                continue;
            ways_add(plan, l, r);
        }
    }
}

/* What is left over on both sides, in order; then on one side, with the other's by number. */
static void ways_route(struct ways_plan *plan)
{
    int r = 0;

    for (int l = 0; l < plan->locals; l++) {
        if (plan->local_used >> l & 1)
            continue;
        while (r < plan->remote->interfaces && plan->remote_used >> r & 1)
            r++;
        ways_add(plan, l, r < plan->remote->interfaces ? r : l % plan->remote->interfaces);
    }
    for (r = 0; r < plan->remote->interfaces; r++) {
        if (!(plan->remote_used >> r & 1))
            ways_add(plan, r % plan->locals, r);
    }
}

int disti_tcp_ways(const struct disti_tcp_local *local, int locals,
                   const struct disti_tcp_address *remote, bool routed,
                   struct disti_tcp_way ways_p[DISTI_TCP_INTERFACES])
{
    struct ways_plan plan = {.local = local, .locals = locals, .remote = remote, .ways = ways_p};
    int home = 0;

    while (home < locals && !disti_tcp_in_network(&local[home], &remote->endpoint[0]))
        home++;
    ways_add(&plan, home < locals ? home : 0, 0);
    if (local[0].endpoint.machine == remote->endpoint[0].machine)
        return plan.count;
    ways_join(&plan, true, true);
    ways_join(&plan, true, false);
    ways_join(&plan, false, true);
    if (routed)
        ways_route(&plan);
    return plan.count;
}

int disti_tcp_sockets(int own, int remote, int ways)
{
    int here = own ? own : ways, there = remote ? remote : ways;

    return here < there ? here : there;
}
