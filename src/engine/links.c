/* SPDX-License-Identifier: BSD-3-Clause */
/* Measures messages between rank 0 and a rank at each distance, and derives what they cost. */
#include "base/clock.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/state.h"

#include <stdlib.h>
#include <string.h>

/* From the times of messages to what they cost: as the simulator would have them take as long. */

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
 * other work, the two ends' locks for example. See tuning/tuning.h for the pieces.
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

/* What is between rank 0 and a rank at each distance: messages there and back. */

/*
 *   rank 0                                    its partner
 *     | ---- order: times, bytes, kind ------->  |
 *     | ---- a message ----------------------->  |   BACK: each one comes back
 *     | <--------------------------------------  |
 *     | ...                                      |
 *     | ==== messages, all at once ===========>  |   BURSTS: the last one is answered
 *     | <--------------------------------------  |
 *     | ---- a message --- > < --- a message --  |   SWAPS: both send, and receive, at once
 *     | ...                                      |
 *     | ---- order: 0 times ------------------>  |   the end
 *
 * On a channel and a number of call that collectives reach after 2^21 calls at the earliest.
 */
#define LINKS_SEQUENCE UINT64_MAX
#define LINKS_CHANNEL DISTI_CHANNELS
#define LINKS_SHORT 8
#define LINKS_MIDDLE DISTI_LINK_MIDDLE
#define LINKS_LONG ((size_t)1 << 20)
#define LINKS_BURST DISTI_LINK_BURST
/* Round trips of an order, and orders. */
#define LINKS_TIMES 8
/* Swaps of an order: of few it is more likely that nothing disturbs them. */
#define LINKS_SWAP_TIMES 5
#define LINKS_ORDERS 64

enum { LINKS_BACK, LINKS_BURSTS, LINKS_SWAPS };

struct links_order {
    uint32_t times, kind;
    uint64_t bytes;
};

/* This rank's end; it lives as long as the engine, since transports may keep its requests. */
struct engine_measurement {
    struct dist_engine *engine;
    int peer;
    int64_t until_ns;
    struct engine_request requests[LINKS_BURST + 1];
    struct links_order order;
    int64_t busy_ns; /* that this end's CPU was, since it was zeroed: not waiting, but at work */
    char out[LINKS_LONG], in[LINKS_LONG];
};

void disti_tune_links_free(struct dist_engine *engine)
{
    free(engine->measuring);
    engine->measuring = NULL;
}

/* ---- messages ---- */

static struct engine_attachment *links_link(const struct engine_measurement *links)
{
    return &links->engine->links[links->engine->route[links->peer]];
}

static struct engine_request *links_request(struct engine_measurement *links, int number,
                                            size_t bytes)
{
    struct engine_request *request = &links->requests[number];

    memset(request, 0, sizeof(*request));
    request->request.envelope.tag =
        disti_tag_collective(links->engine->config->group, LINKS_SEQUENCE, LINKS_CHANNEL);
    request->request.envelope.bytes = bytes;
    return request;
}

static void links_send(struct engine_measurement *links, int number, const void *data, size_t bytes)
{
    struct engine_request *request = links_request(links, number, bytes);
    struct engine_attachment *link = links_link(links);

    int64_t begin = disti_now_ns();

    request->request.data = data;
    disti_attachment_send(link, links->peer, request);
    links->busy_ns += disti_now_ns() - begin;
}

static void links_recv(struct engine_measurement *links, int number, void *data, size_t bytes)
{
    struct engine_request *request = links_request(links, number, bytes);
    struct engine_attachment *link = links_link(links);

    request->request.sink = (struct dist_sink){.dst = data, .bytes = bytes, .dtype = DIST_UINT8};
    disti_attachment_recv(link, links->peer, request);
}

static dist_status links_fail(const struct engine_measurement *links, dist_status status)
{
    return disti_fail(status,
                      "rank %d was measuring the cost of messages to rank %d (DIST_TUNING=off "
                      "skips that), and %s",
                      links->engine->config->rank, links->peer,
                      status == DIST_ERR_TIMEOUT ? "waited too long" : "they failed");
}

/* Until the requests [0, count) have ended. */
static dist_status links_wait(struct engine_measurement *links, int count)
{
    struct disti_wait_policy policy;
    struct disti_wait wait = {0};

    disti_wait_policy_init(&policy, true);
    for (int i = 0; i < count;) {
        int moved;

        if (links->requests[i].status == DIST_OK) {
            i++;
            continue;
        }
        if (links->requests[i].status != DIST_IN_PROGRESS)
            return links_fail(links, links->requests[i].status);
        /* Lets the transport move; what that takes counts only if there was something to do. */
        struct engine_attachment *link = links_link(links);
        int64_t begin = disti_now_ns();
        moved = disti_attachment_progress(link);
        if (moved > 0)
            links->busy_ns += disti_now_ns() - begin;
        if (moved < 0)
            return moved;
        if (moved)
            wait = (struct disti_wait){0};
        else if (disti_now_ns() > links->until_ns)
            return links_fail(links, DIST_ERR_TIMEOUT);
        else if (disti_wait_step(&policy, &wait))
            disti_sleep_ns(disti_wait_nap(&wait));
    }
    return DIST_OK;
}

/* ---- the partner ---- */

/* Both ends do this; the time of one, seconds, of all but the first, for which one may be late. */
static dist_status links_swap(struct engine_measurement *links, uint32_t times, size_t bytes,
                              double *seconds_p)
{
    dist_status status = DIST_OK;
    int64_t begin = 0;

    for (uint32_t i = 0; i < times && status == DIST_OK; i++) {
        if (i == 1)
            begin = disti_now_ns();
        links_recv(links, 0, links->in, bytes);
        links_send(links, 1, links->out, bytes);
        status = links_wait(links, 2);
    }
    *seconds_p = (double)(disti_now_ns() - begin) * 1e-9 / (times - 1);
    return status;
}

static dist_status links_obey(struct engine_measurement *links)
{
    const struct links_order *order = &links->order;
    dist_status status = DIST_OK;
    int ahead = order->kind == LINKS_BURSTS ? (int)order->times : 1;
    double seconds;

    if (order->kind == LINKS_SWAPS)
        return links_swap(links, order->times, order->bytes, &seconds);
    for (uint32_t i = 0; i < order->times && status == DIST_OK; i += (uint32_t)ahead) {
        for (int r = 0; r < ahead; r++)
            links_recv(links, r, links->in, order->bytes);
        status = links_wait(links, ahead);
        if (status == DIST_OK)
            links_send(links, 0, links->out, order->bytes);
        if (status == DIST_OK)
            status = links_wait(links, 1);
    }
    return status;
}

static dist_status links_follow(struct engine_measurement *links)
{
    dist_status status;

    do {
        links_recv(links, 0, &links->order, sizeof(links->order));
        status = links_wait(links, 1);
        if (status == DIST_OK &&
            !(links->order.times <= LINKS_BURST && links->order.kind <= LINKS_SWAPS &&
              links->order.bytes <= LINKS_LONG))
            status = disti_fail(DIST_ERR_MISMATCH,
                                "rank %d got an invalid order from rank %d while measuring costs: "
                                "give all ranks the same version of libdist",
                                links->engine->config->rank, links->peer);
        if (status == DIST_OK)
            status = links_obey(links);
    } while (status == DIST_OK && links->order.times);
    return status;
}

/* ---- rank 0 ---- */

static dist_status links_command(struct engine_measurement *links, uint32_t times, uint32_t kind,
                                 size_t bytes)
{
    links->order = (struct links_order){.times = times, .kind = kind, .bytes = bytes};
    links_send(links, 0, &links->order, sizeof(links->order));
    return links_wait(links, 1);
}

/* The shortest round trip or burst, and the work in it. */
struct links_time {
    int64_t best_ns, busy_ns;
};

static dist_status links_once(struct engine_measurement *links, uint32_t kind, size_t bytes,
                              struct links_time *time)
{
    bool burst = kind == LINKS_BURSTS;
    uint32_t times = burst ? LINKS_BURST : bytes > LINKS_SHORT ? 2 : LINKS_TIMES;
    int ahead = burst ? LINKS_BURST : 1;
    dist_status status = links_command(links, times, kind, bytes);

    for (uint32_t i = 0; i < times && status == DIST_OK; i += (uint32_t)ahead) {
        int64_t begin = disti_now_ns(), took;

        links->busy_ns = 0;
        links_recv(links, ahead, links->in, bytes);
        for (int r = 0; r < ahead; r++)
            links_send(links, r, links->out, bytes);
        status = links_wait(links, ahead + 1);
        took = disti_now_ns() - begin;
        if (took < time->best_ns)
            *time = (struct links_time){took, links->busy_ns};
    }
    return status;
}

/* The shortest mean of some swaps, of as many as there is time for. */
static dist_status links_best_swap(struct engine_measurement *links, enum tune_effort effort,
                                   double *seconds_p)
{
    int64_t until = disti_now_ns() + disti_tune_each_ns(effort);
    dist_status status = DIST_OK;
    double best = 1e9, seconds;

    for (int i = 0; status == DIST_OK && i < LINKS_ORDERS && (i == 0 || disti_now_ns() < until);
         i++) {
        status = links_command(links, LINKS_SWAP_TIMES, LINKS_SWAPS, LINKS_SHORT);
        if (status == DIST_OK)
            status = links_swap(links, LINKS_SWAP_TIMES, LINKS_SHORT, &seconds);
        if (status == DIST_OK && seconds < best)
            best = seconds;
    }
    *seconds_p = best;
    return status;
}

/* The shortest of as many as there is time for, and the work in it; seconds. */
static dist_status links_best(struct engine_measurement *links, enum tune_effort effort,
                              uint32_t kind, size_t bytes, double *seconds_p, double *busy_p)
{
    int64_t until = disti_now_ns() + disti_tune_each_ns(effort);
    struct links_time time = {INT64_MAX, INT64_MAX};
    dist_status status = DIST_OK;

    for (int i = 0; status == DIST_OK && i < LINKS_ORDERS && (i == 0 || disti_now_ns() < until);
         i++)
        status = links_once(links, kind, bytes, &time);
    *seconds_p = (double)time.best_ns * 1e-9;
    *busy_p = (double)time.busy_ns * 1e-9;
    return status;
}

static dist_status links_short(struct engine_measurement *links, enum tune_effort effort, bool far,
                               struct disti_link_times *times)
{
    dist_status status =
        links_best(links, effort, LINKS_BACK, LINKS_SHORT, &times->back, &times->back_busy);
    double busy;

    if (status != DIST_OK)
        return status;
    return far ? links_best_swap(links, effort, &times->swap)
               : links_best(links, effort, LINKS_BURSTS, LINKS_SHORT, &times->burst, &busy);
}

/* Where a longer message does not take too long, it tells more. */
static dist_status links_long(struct engine_measurement *links, enum tune_effort effort,
                              struct disti_link_times *times)
{
    dist_status status =
        links_best(links, effort, LINKS_BACK, LINKS_MIDDLE, &times->middle, &times->middle_busy);
    double busy;

    times->length = times->middle;
    times->bytes = (double)LINKS_MIDDLE;
    if (status != DIST_OK || times->length * 1e9 >= (double)disti_tune_each_ns(effort) / 2)
        return status;
    times->bytes = (double)LINKS_LONG;
    return links_best(links, effort, LINKS_BACK, LINKS_LONG, &times->length, &busy);
}

static dist_status links_lead(struct engine_measurement *links, enum tune_effort effort,
                              int distance, struct disti_cost *cost)
{
    bool far = distance == DISTI_OTHER_NODE;
    struct disti_link_times times;
    dist_status status = links_short(links, effort, far, &times);

    if (status == DIST_OK)
        status = links_long(links, effort, &times);
    if (status == DIST_OK)
        status = links_command(links, 0, LINKS_BACK, 0);
    if (status == DIST_OK && far)
        disti_tune_fit_far(&times, &cost->links[distance], &cost->network_bytes_per_second);
    else if (status == DIST_OK)
        disti_tune_fit_near(&times, &cost->links[distance]);
    return status;
}

/* ---- who with whom ---- */

static enum disti_distance links_distance(const struct disti_topology *topology, int rank)
{
    const struct dist_place *a = &topology->localities[0], *b = &topology->localities[rank];

    if (disti_node_of(topology, 0) != disti_node_of(topology, rank))
        return DISTI_OTHER_NODE;
    return a->package == b->package && a->numa == b->numa ? DISTI_SAME_NUMA : DISTI_SAME_NODE;
}

/* The lowest rank at that distance from rank 0; -1: there is none. */
static int links_partner(const struct disti_topology *topology, int distance)
{
    for (int r = 1; r < topology->ranks; r++) {
        if ((int)links_distance(topology, r) == distance)
            return r;
    }
    return -1;
}

dist_status disti_tune_links(struct dist_engine *engine, enum tune_effort effort,
                             struct disti_cost *cost)
{
    struct engine_measurement *links = malloc(sizeof(*links));
    bool measured[DISTI_DISTANCES] = {false};
    int rank = engine->config->rank;
    dist_status status = DIST_OK;

    if (!links)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for measuring costs");
    memset(links, 0, sizeof(*links));
    engine->measuring = links;
    links->engine = engine;
    links->until_ns = disti_deadline_ms(engine->config->timeout_ms);
    for (int d = 0; d < DISTI_DISTANCES && status == DIST_OK; d++) {
        int partner = links_partner(engine->topology, d);

        if (partner < 0 || (rank != 0 && rank != partner))
            continue;
        measured[d] = true;
        links->peer = rank == 0 ? partner : 0;
        status = rank == 0 ? links_lead(links, effort, d, cost) : links_follow(links);
    }
    if (status == DIST_OK) {
        /*
         * Inside a machine one distance stands for another that could not be measured. And what is
         * copied there goes no faster than a copy: messages to and fro were in caches, others are
         * not.
         */
        if (measured[DISTI_SAME_NUMA] && !measured[DISTI_SAME_NODE])
            cost->links[DISTI_SAME_NODE] = cost->links[DISTI_SAME_NUMA];
        if (measured[DISTI_SAME_NODE] && !measured[DISTI_SAME_NUMA])
            cost->links[DISTI_SAME_NUMA] = cost->links[DISTI_SAME_NODE];
        for (int d = DISTI_SAME_NUMA; d <= DISTI_SAME_NODE; d++) {
            if (cost->links[d].bytes_per_second > cost->copy_bytes_per_second)
                cost->links[d].bytes_per_second = cost->copy_bytes_per_second;
        }
        disti_tune_links_free(engine);
    }
    return status;
}
