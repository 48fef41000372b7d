/* SPDX-License-Identifier: BSD-3-Clause */
/* The run: events in the order of time. */
#include "base/log.h"
#include "simulate/internal.h"

#include <stdlib.h>

/* ---- the heap: the earliest event first, four children a place ---- */

static inline bool event_before(const struct sim_event *a, const struct sim_event *b)
{
    return a->time != b->time ? a->time < b->time : a->order < b->order;
}

/* There is room for every lane and every message (message_room). */
static void event_put(struct sim *sim, uint64_t time, uint32_t target)
{
    struct sim_event event = {time, sim->orders[sim->unit]++, target};
    uint32_t at = sim->events++;
    while (at > 0 && event_before(&event, &sim->heap[(at - 1) / 4])) {
        sim->heap[at] = sim->heap[(at - 1) / 4];
        at = (at - 1) / 4;
    }
    sim->heap[at] = event;
}

static struct sim_event event_take(struct sim *sim)
{
    struct sim_event first = sim->heap[0], last = sim->heap[--sim->events];
    uint32_t at = 0, child;
    while ((child = 4 * at + 1) < sim->events) {
        uint32_t end = child + 4 < sim->events ? child + 4 : sim->events, least = child;
        while (++child < end)
            if (event_before(&sim->heap[child], &sim->heap[least]))
                least = child;
        if (!event_before(&sim->heap[least], &last))
            break;
        sim->heap[at] = sim->heap[least];
        at = least;
    }
    sim->heap[at] = last;
    return first;
}

/* ---- messages ---- */

/* Room for one message more, and for the events that it and the lanes can have. */
static bool message_room(struct sim *sim)
{
    if (sim->unused != SIM_NONE || sim->message_count < sim->message_room)
        return true;
    uint32_t room = sim->message_room * 2 + 64;
    void *messages = realloc(sim->messages, room * sizeof(*sim->messages));
    if (messages)
        sim->messages = messages;
    void *heap = realloc(sim->heap, ((size_t)room + sim->lane_count) * sizeof(*sim->heap));
    if (heap)
        sim->heap = heap;
    if (!messages || !heap || room >= SIM_MESSAGE)
        return false;
    sim->message_room = room;
    return true;
}

static inline uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- receiving ---- */

/* Copying or reducing so many bytes: what has just come, if it is short, is in a cache. */
static uint64_t run_vector(double bytes, double per_byte)
{
    return sim_bytes(bytes, bytes <= DISTI_CACHED_BYTES ? per_byte / DISTI_CACHED_TIMES : per_byte);
}

/* What the CPU does for the first, or the last, piece of a message between nodes. */
static uint64_t run_piece(const struct sim *sim, double bytes)
{
    return sim_bytes(bytes < DISTI_NETWORK_PIECE ? bytes : DISTI_NETWORK_PIECE,
                     sim->network_per_byte);
}

static const struct sim_step *lane_step(const struct sim *sim, uint32_t lane)
{
    const struct sim_lane *l = &sim->lanes[lane];
    const struct sim_program *program = sim->programs->at[l->rank];
    return &program->steps[program->lanes[lane - sim->ranks[l->rank].first_lane].first + l->next];
}

/*
 * The lane's receive takes its message, whose first byte was here at `head` and whose last one at
 * `tail`, which is now or was before. What comes over a line is reduced while it comes in; inside a
 * node the receiver moves the bytes first.
 */
static void run_receive(struct sim *sim, uint32_t lane, struct sim_wire *wire, uint64_t head,
                        uint64_t tail)
{
    const struct sim_step *step = lane_step(sim, lane);
    const struct sim_link *link = &sim->links[wire->distance];
    double bytes = step->chunks * sim->chunk_bytes;
    uint64_t start, engine = sim->step + link->overhead, work = 0, memory = 0;
    if (step->kind == DISTI_RECV_REDUCE) {
        work += run_vector(bytes, sim->reduce_per_byte);
        memory += sim_bytes(bytes, sim->memory_per_byte);
    }
    if (wire->distance < DISTI_OTHER_NODE) {
        work += sim_bytes(bytes, link->per_byte);
        memory += sim_bytes(bytes, sim->memory_per_byte);
    } else {
        work += sim_bytes(bytes, sim->network_per_byte);
        engine += run_piece(sim, bytes);
        work -= run_piece(sim, bytes);
    }
    uint64_t posted = sim->lanes[lane].since;
    uint64_t end =
        disti_sim_work(sim, wire->rank, later(posted, head), work + engine, memory, &start);
    if (end < tail + engine)
        end = sim->ranks[wire->rank].free = tail + engine;
    event_put(sim, end, lane);
    if (wire->arrived == 0 && wire->sender != SIM_NONE) {
        event_put(sim, end, wire->sender);
        wire->sender = SIM_NONE;
    }
}

static void run_arrival(struct sim *sim, const struct sim_message *message)
{
    struct sim_wire *wire = &sim->wires[message->wire];
    uint32_t lane = wire->lane;
    if (message->blocks)
        wire->sender = message->lane;
    if (lane == SIM_NONE) {
        wire->arrived++;
        return;
    }
    wire->lane = SIM_NONE;
    run_receive(sim, lane, wire, message->head, message->tail);
}

static void run_post(struct sim *sim, uint32_t lane, uint32_t number)
{
    struct sim_wire *wire = &sim->wires[number];
    sim->lanes[lane].since = sim->now;
    if (wire->arrived == 0) {
        wire->lane = lane;
        return;
    }
    wire->arrived--;
    run_receive(sim, lane, wire, sim->now, sim->now);
}

/* ---- sending ---- */

/* The line of the message's next stage; NULL: it has passed the last one, or there is none. */
static struct sim_line *message_line(const struct sim *sim, const struct sim_message *message)
{
    const struct sim_wire *wire = &sim->wires[message->wire];
    uint32_t from = sim->ranks[sim->lanes[message->lane].rank].node;
    uint32_t to = sim->ranks[wire->rank].node, rack = (uint32_t)sim->topology->rack_nodes;
    if (wire->distance < DISTI_OTHER_NODE)
        return NULL;
    switch (message->stage + (wire->distance == DISTI_OTHER_NODE && message->stage > 0 ? 2 : 0)) {
    case 0:
        return &sim->node_lines[2 * from];
    case 1:
        return &sim->rack_lines[2 * (from / rack)];
    case 2:
        return &sim->rack_lines[2 * (to / rack) + 1];
    case 3:
        return &sim->node_lines[2 * to + 1];
    default:
        return NULL;
    }
}

/*
 * The message's head has come to the next line of its way, or it has come as a whole. It is passed
 * on byte by byte, so on the next line it is while it still comes out of this one.
 */
static void run_message(struct sim *sim, uint32_t number)
{
    struct sim_message *message = &sim->messages[number];
    struct sim_line *line = message_line(sim, message);
    if (!line) {
        run_arrival(sim, message);
        message->lane = sim->unused;
        sim->unused = number;
        return;
    }
    uint64_t begin = later(sim->now, line->free), time = sim_bytes(message->bytes, line->per_byte);
    line->free = begin + time;
    line->busy += time;
    line->waited += begin - sim->now;
    message->head = begin;
    message->tail = later(message->tail, begin + time);
    if (message->stage++ == 0) {
        uint64_t latency = sim->links[sim->wires[message->wire].distance].latency;
        event_put(sim, later(message->sent, message->tail), message->lane);
        message->head += latency;
        message->tail += latency;
    }
    event_put(sim, message_line(sim, message) ? message->head : message->tail,
              SIM_MESSAGE | number);
}

static dist_status run_send(struct sim *sim, uint32_t lane, const struct sim_step *step)
{
    if (!message_room(sim))
        return DIST_ERR_NO_MEMORY;
    uint32_t rank = sim->lanes[lane].rank, number = sim->unused;
    if (number == SIM_NONE)
        number = sim->message_count++;
    else
        sim->unused = sim->messages[number].lane;
    uint32_t wire = sim->routes[sim->ranks[rank].first_send + step->end];
    uint8_t distance = sim->wires[wire].distance;
    const struct sim_link *link = &sim->links[distance];
    double bytes = step->chunks * sim->chunk_bytes;
    bool inside = distance < DISTI_OTHER_NODE;
    uint64_t put = inside ? 0 : sim_bytes(bytes, sim->network_per_byte);
    uint64_t start;
    uint64_t end = disti_sim_work(sim, rank, sim->now, sim->step + link->overhead + put, 0, &start);
    uint64_t begin = start + sim->step + (inside ? link->latency : run_piece(sim, bytes));
    sim->messages[number] = (struct sim_message){.lane = lane,
                                                 .wire = wire,
                                                 .blocks = inside && bytes > (double)sim->eager,
                                                 .bytes = bytes,
                                                 .head = begin,
                                                 .tail = inside ? begin : start + sim->step + put,
                                                 .sent = end};
    sim->forecast->links[distance].messages++;
    sim->chunks[distance] += step->chunks;
    event_put(sim, begin, SIM_MESSAGE | number);
    if (inside && !sim->messages[number].blocks)
        event_put(sim, end, lane);
    return DIST_OK;
}

/* ---- lanes ---- */

static void run_local(struct sim *sim, uint32_t lane, const struct sim_step *step)
{
    bool reduces = step->kind == DISTI_REDUCE;
    double bytes = step->chunks * sim->chunk_bytes;
    uint64_t start, work = run_vector(bytes, reduces ? sim->reduce_per_byte : sim->copy_per_byte);
    event_put(sim,
              disti_sim_work(sim, sim->lanes[lane].rank, sim->now, sim->step + work,
                             sim_bytes(bytes, sim->memory_per_byte), &start),
              lane);
}

/* Does the lane's step wait still? Then the lane is remembered with the one that it waits for. */
static bool run_waits(struct sim *sim, uint32_t lane, const struct sim_step *step)
{
    if (step->wait_lane == DISTI_NO_LANE)
        return false;
    struct sim_lane *l = &sim->lanes[lane];
    struct sim_lane *other = &sim->lanes[sim->ranks[l->rank].first_lane + step->wait_lane];
    if (other->next > step->wait_step)
        return false;
    if (other->waiters == SIM_NONE || step->wait_step < other->awaited)
        other->awaited = step->wait_step;
    l->next_waiter = other->waiters;
    other->waiters = lane;
    return true;
}

/* The lane's next step begins now if it waits for nothing. */
static dist_status run_begin(struct sim *sim, uint32_t lane)
{
    const struct sim_lane *l = &sim->lanes[lane];
    const struct sim_rank *rank = &sim->ranks[l->rank];
    if (l->next == sim->programs->at[l->rank]->lanes[lane - rank->first_lane].count)
        return DIST_OK;
    const struct sim_step *step = lane_step(sim, lane);
    if (run_waits(sim, lane, step))
        return DIST_OK;
    if (step->kind == DISTI_SEND)
        return run_send(sim, lane, step);
    if (step->kind == DISTI_RECV || step->kind == DISTI_RECV_REDUCE)
        run_post(sim, lane, rank->first_wire + step->end);
    else
        run_local(sim, lane, step);
    return DIST_OK;
}

/* The lane's step has ended: if it was waited for, whoever waits for the lane looks again. */
static dist_status run_advance(struct sim *sim, uint32_t lane)
{
    struct sim_lane *l = &sim->lanes[lane];
    uint32_t waiter = SIM_NONE;
    if (l->waiters != SIM_NONE && l->next == l->awaited) {
        waiter = l->waiters;
        l->waiters = SIM_NONE;
    }
    l->next++;
    sim->steps_done++;
    dist_status status = run_begin(sim, lane);
    while (waiter != SIM_NONE && status == DIST_OK) {
        uint32_t next = sim->lanes[waiter].next_waiter;
        status = run_begin(sim, waiter);
        waiter = next;
    }
    return status;
}

/* The rank of the lane, or the one whose lines or CPU the message is about to keep busy. */
static uint32_t event_rank(const struct sim *sim, const struct sim_event *event)
{
    if (!(event->target & SIM_MESSAGE))
        return sim->lanes[event->target].rank;
    const struct sim_message *message = &sim->messages[event->target & ~SIM_MESSAGE];
    const struct sim_wire *wire = &sim->wires[message->wire];
    int sender_stages = wire->distance == DISTI_OTHER_RACK ? 2 : 1;
    return message->stage < sender_stages ? sim->lanes[message->lane].rank : wire->rank;
}

/* Runs all programs to their end. ERR_NO_MEMORY; ERR_INTERNAL if they do not come to an end. */
static dist_status sim_run(struct sim *sim)
{
    dist_status status = message_room(sim) ? DIST_OK : DIST_ERR_NO_MEMORY;
    bool units = sim->count > sim->period;
    for (uint32_t lane = 0; lane < sim->lane_count && status == DIST_OK; lane++) {
        sim->unit = sim->lanes[lane].rank / sim->period;
        status = run_begin(sim, lane);
    }
    while (sim->events > 0 && status == DIST_OK) {
        struct sim_event event = event_take(sim);
        sim->now = event.time;
        if (units)
            sim->unit = event_rank(sim, &event) / sim->period;
        if (event.target & SIM_MESSAGE)
            run_message(sim, event.target & ~SIM_MESSAGE);
        else
            status = run_advance(sim, event.target);
    }
    return status;
}

/* The simulator: what all ranks' plans take together. */

/*
 * Of a server of some years ago, and of Ethernet:
 *   inside a node: a message through the rings of shared memory, measured with two ranks on
 *     neighbouring cores; across NUMA nodes about twice the time;
 *   between nodes: TCP over 10 Gbit/s, 94 % of which are data in frames of 1500 bytes; half of a
 *     round trip through two kernels and a switch takes about 20 us, of which each side works 5;
 *   between racks: two more switches, and an uplink of 4 times 10 Gbit/s;
 *   memory: one core copies some 8 GB/s out of its caches and reduces as fast; all together have
 *     about 4 channels of 20 GB/s, and a copy moves every byte three times (read, own, write);
 *   the kernel's part in sending, a copy and packets, takes about twice as long as a copy;
 *   a CPU changes from one process to another in 1 to 2 us.
 */
const struct disti_cost disti_cost_usual = {.links = {[DISTI_SAME_NUMA] = {0.5e-6, 0.2e-6, 8e9},
                                                      [DISTI_SAME_NODE] = {1e-6, 0.2e-6, 5e9},
                                                      [DISTI_OTHER_NODE] = {20e-6, 5e-6, 1.17e9},
                                                      [DISTI_OTHER_RACK] = {25e-6, 5e-6, 4.7e9}},
                                            .eager_bytes = 8 << 10,
                                            .copy_bytes_per_second = 8e9,
                                            .reduce_bytes_per_second = 8e9,
                                            .node_bytes_per_second = 25e9,
                                            .network_bytes_per_second = 4e9,
                                            .step_s = 0.1e-6,
                                            .switch_s = 1.5e-6,
                                            .node_cpus = 0};

static void simulate_lines(const struct sim *sim, const struct sim_line *lines, uint32_t count,
                           uint64_t stands, struct disti_traffic *traffic)
{
    double waited = 0; /* of whole picoseconds: exact up to some hours */
    for (uint32_t i = 0; i < count; i++) {
        double busy = (double)lines[i].busy / (sim->now ? (double)sim->now : 1);
        traffic->busiest = busy > traffic->busiest ? busy : traffic->busiest;
        waited += (double)lines[i].waited;
    }
    traffic->waited_s += waited * (double)stands / SIM_SECOND;
}

/* Each simulated rank stands for `stands` ranks. */
static void simulate_report(const struct sim *sim, struct disti_forecast *forecast)
{
    uint64_t stands = sim->programs->ranks / sim->count, busy = 0;
    struct disti_traffic *links = forecast->links;
    simulate_lines(sim, sim->node_lines, 2 * sim->node_count, stands, &links[DISTI_OTHER_NODE]);
    simulate_lines(sim, sim->rack_lines, 2 * sim->rack_count, stands, &links[DISTI_OTHER_RACK]);
    for (int d = 0; d < DISTI_DISTANCES; d++) {
        links[d].messages *= stands;
        links[d].bytes = (double)(sim->chunks[d] * stands) * sim->chunk_bytes;
    }
    for (uint32_t i = 0; i < sim->count; i++)
        busy = sim->ranks[i].busy > busy ? sim->ranks[i].busy : busy;
    forecast->busiest_rank = (double)busy / (sim->now ? (double)sim->now : 1);
    forecast->seconds = (double)sim->now / SIM_SECOND;
    forecast->steps = sim->steps_done * stands;
    forecast->simulated = (int)sim->count;
}

struct disti_simulation {
    dist_collective collective;
    struct sim_programs programs;
    const struct disti_topology *topology;
};

dist_status disti_simulation_open(const struct disti_algorithm *algorithm,
                                  const struct disti_shape *shape,
                                  struct disti_simulation **simulation_p)
{
    struct disti_simulation *simulation = calloc(1, sizeof(*simulation));
    if (!simulation)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory to simulate %d ranks", shape->ranks);
    simulation->collective = shape->collective;
    simulation->topology = shape->topology;
    dist_status status = disti_sim_programs_write(algorithm, shape, &simulation->programs);
    if (status == DIST_OK) {
        *simulation_p = simulation;
        simulation = NULL;
    }
    disti_simulation_close(simulation);
    return status;
}

void disti_simulation_close(struct disti_simulation *simulation)
{
    if (!simulation)
        return;
    disti_sim_programs_free(&simulation->programs);
    free(simulation);
}

static dist_status simulate_run(const struct disti_simulation *simulation, size_t bytes, bool whole,
                                const struct disti_cost *cost, struct disti_forecast *forecast_p)
{
    struct disti_forecast forecast = {0};
    struct sim sim = {.programs = &simulation->programs,
                      .topology = simulation->topology,
                      .unused = SIM_NONE,
                      .forecast = &forecast};
    if (simulation->collective == DIST_COLL_BARRIER) /* moves no data */
        bytes = 0;
    dist_status status = disti_sim_machine_open(&sim, bytes, cost, whole);
    if (status != DIST_OK)
        goto out;
    status = sim_run(&sim);
    if (status != DIST_OK) {
        disti_fail(status, "no memory to simulate %d ranks", sim.topology->ranks);
        goto out;
    }
    uint64_t steps = 0;
    for (uint32_t i = 0; i < sim.count; i++)
        steps += sim.programs->at[i]->step_count;
    if (sim.steps_done != steps) {
        status = disti_fail(DIST_ERR_INTERNAL, "the plans of %d ranks never complete",
                            sim.topology->ranks);
        goto out;
    }
    simulate_report(&sim, &forecast);
    *forecast_p = forecast;
out:
    disti_sim_machine_close(&sim);
    return status;
}

dist_status disti_simulation_run(const struct disti_simulation *simulation, size_t bytes,
                                 const struct disti_cost *cost, struct disti_forecast *forecast_p)
{
    return simulate_run(simulation, bytes, false, cost, forecast_p);
}

dist_status disti_sim_whole_run(const struct disti_simulation *simulation, size_t bytes,
                                const struct disti_cost *cost, struct disti_forecast *forecast_p)
{
    return simulate_run(simulation, bytes, true, cost, forecast_p);
}

dist_status disti_forecast(const struct disti_algorithm *algorithm, const struct disti_shape *shape,
                           size_t bytes, const struct disti_cost *cost,
                           struct disti_forecast *forecast_p)
{
    struct disti_simulation *simulation = NULL;
    dist_status status = disti_simulation_open(algorithm, shape, &simulation);
    if (status == DIST_OK)
        status = disti_simulation_run(simulation, bytes, cost, forecast_p);
    disti_simulation_close(simulation);
    return status;
}

dist_status disti_simulate(const struct disti_algorithm *algorithm, const struct disti_shape *shape,
                           size_t bytes, const struct disti_cost *cost, double *seconds_p)
{
    struct disti_forecast forecast;
    dist_status status = disti_forecast(algorithm, shape, bytes, cost, &forecast);
    if (status == DIST_OK)
        *seconds_p = forecast.seconds;
    return status;
}
