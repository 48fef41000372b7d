/* SPDX-License-Identifier: BSD-3-Clause */
/* From the times of messages to what they cost: as the simulator would have them take as long. */
#include "engine/measure/tune.h"

/* No limit shows. */
#define FIT_UNLIMITED 1e14
/* Of a message's way no more is work of its receiver, however long a swap took by chance. */
#define FIT_WORK_MOST (2.0 / 3)

void disti_tune_fit_near(const struct disti_link_times *times, struct disti_link_cost *link)
{
    double way = times->back / 2, gap = (times->burst - times->back) / (DISTI_LINK_BURST - 1);

    /* Sender and receiver have a part in the way each, and something is left for the wire. */
    gap = gap > 0 ? gap : 0;
    link->overhead_s = gap < way / 4 ? gap : way / 4;
    link->latency_s = way - link->overhead_s;
    if (times->length / 2 > way)
        link->bytes_per_second = times->bytes / (times->length / 2 - way);
}

/*
 * Between nodes the CPU's part is the kernel's, and shows as work: in each round trip a message is
 * sent and one is received. What a swap takes longer than a way is work too that is in the way of
 * other work, the two ends' locks for example. See cost.h for the pieces.
 */
void disti_tune_fit_far(const struct disti_link_times *times, struct disti_link_cost *link,
                        double *network_p)
{
    double way = times->back / 2, longer = times->swap > way ? times->swap - way : 0;
    double work = times->back_busy / 2 + longer;
    double each = (times->middle_busy - times->back_busy) / 2 / (double)DISTI_LINK_MIDDLE, line;

    each = each > 0 ? each : 0;
    link->overhead_s = work < FIT_WORK_MOST * way ? work : FIT_WORK_MOST * way;
    link->latency_s = way - link->overhead_s;
    *network_p = each > 0 ? 1 / each : FIT_UNLIMITED;
    line = times->length / 2 - way - 2 * each * DISTI_NETWORK_PIECE;
    link->bytes_per_second = line > 0 ? times->bytes / line : FIT_UNLIMITED;
}

void disti_tune_fit_fill(const bool measured[DISTI_DISTANCES], struct disti_cost *cost)
{
    if (measured[DISTI_SAME_NUMA] && !measured[DISTI_SAME_NODE])
        cost->links[DISTI_SAME_NODE] = cost->links[DISTI_SAME_NUMA];
    if (measured[DISTI_SAME_NODE] && !measured[DISTI_SAME_NUMA])
        cost->links[DISTI_SAME_NUMA] = cost->links[DISTI_SAME_NODE];
    for (int d = DISTI_SAME_NUMA; d <= DISTI_SAME_NODE; d++) {
        if (cost->links[d].bytes_per_second > cost->copy_bytes_per_second)
            cost->links[d].bytes_per_second = cost->copy_bytes_per_second;
    }
}
