/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Simulates how long the plans of all ranks take together. A program is the simulator's form of a
 * plan. A machine consists of ranks, nodes, lines (the network links of nodes and racks) and flows
 * (the messages from one rank to another). A run processes events in the order of time.
 */
#include "base/log.h"
#include "simulate/internal.h"
#include "topology/topology.h"

#include <stdlib.h>
#include <string.h>

#define SIM_NONE UINT32_MAX

/* Limits that keep a simulation from taking minutes: steps kept in memory (16 bytes each), and
 * steps simulated. */
#define SIM_KEPT_MAX (UINT32_C(1) << 24)
#define SIM_STEPS_MAX (UINT32_C(50) << 20)

/* ---- programs ---- */

/* A step, without the members that do not influence the time. */
struct sim_step {
    uint32_t end; /* SEND: index in the program's sends; RECV*: index in its receives */
    uint32_t chunks;
    uint32_t wait_step;
    uint16_t wait_lane;
    uint8_t kind, none; /* none: always 0, since programs are compared byte by byte */
};

struct sim_span {
    uint32_t first, count; /* steps[first .. first + count) of the program */
};

/* The other end of messages: the rank `offset` positions further on the ring, wrapping around. */
struct sim_end {
    uint32_t offset, channel;
};

/* A plan with peers relative to its rank's position on the ring. Ranks that do the same with their
 * neighbours have the same program, which is kept once. */
struct sim_program {
    struct sim_program *next; /* in its hash bucket */
    uint64_t hash;
    uint32_t lane_count, step_count, send_count, recv_count;
    const struct sim_span *lanes;
    const struct sim_step *steps;
    const struct sim_end *sends, *recvs; /* sorted */
};

/* The programs of all ranks, by position. The first `period` ranks represent all ranks. */
struct sim_programs {
    uint32_t ranks, period;
    uint32_t chunks; /* per block */
    struct sim_program **at, **buckets;
    uint32_t bucket_count; /* a power of two */
    uint64_t steps, kept_steps;
    uint32_t shortest; /* number of steps of the shortest plan so far */
};

/* ---- machines ---- */

/* One direction of the network link of a node or rack. It transfers messages in the order of their
 * arrival. Times are in integer picoseconds, so that sums are exact on every platform. */
struct sim_line {
    /* free: when it can transfer the next message; busy: the total time of its transfers; waited:
     * the total time for which messages have waited for it */
    uint64_t free, busy, waited;
    double per_byte;
};

struct sim_cpu {
    uint64_t free;
    uint32_t last; /* the rank that it served last, plus 1; 0: none yet */
};

struct sim_node {
    uint64_t memory_free;
    /* NULL: one CPU per rank; otherwise the node's CPUs, or those that all nodes share */
    struct sim_cpu *cpus;
    int cpu_count;
};

struct sim_rank {
    uint32_t node;
    uint32_t first_lane, first_send, first_flow;
    uint64_t free, busy;
};

/* The costs of a message over one distance (enum disti_distance). */
struct sim_link {
    uint64_t latency, overhead;
    double per_byte;
};

/* ---- runs ---- */

struct sim_lane {
    uint32_t rank;
    uint32_t next;                 /* index of its next step */
    uint64_t since;                /* when its receive was posted */
    uint32_t waiters, next_waiter; /* list of lanes that wait for a step of this lane */
    uint32_t awaited;              /* the first step that they wait for */
};

/* A flow: the messages from one rank to another on one channel, as their receiver sees them. */
struct sim_flow {
    uint32_t rank;    /* the receiver */
    uint32_t arrived; /* messages that have arrived and have not been received */
    uint32_t lane;    /* the lane that waits for a message, or SIM_NONE */
    uint32_t sender;  /* the lane whose send ends when all messages that have arrived have been
                         received, or SIM_NONE */
    uint8_t distance;
};

/* A message in transit. */
struct sim_message {
    uint32_t lane; /* the sender's lane; in an unused message: the next unused message */
    uint32_t flow;
    uint8_t stage;
    bool blocks; /* its send ends only when it is received */
    double bytes;
    uint64_t head, tail; /* when its first and its last byte reach the current stage */
    uint64_t sent;       /* when the sender's CPU has finished with it */
};

/*
 * An event: at `time`, the lane's step has ended or the message has reached its next stage. Events
 * at the same time are processed in the order in which they were caused, counted per unit, so that
 * the result of a unit does not depend on its position among identical units.
 */
struct sim_event {
    uint64_t time;
    uint32_t order;
    uint32_t target; /* SIM_MESSAGE | message, or a lane */
};
#define SIM_MESSAGE (UINT32_C(1) << 31)

struct sim {
    const struct sim_programs *programs;
    const struct disti_topology *topology;
    uint32_t count;  /* simulated ranks */
    uint32_t period; /* number of ranks of a unit (a node or rack), if one unit can represent all
                        units; otherwise all ranks */
    double chunk_bytes;
    double reduce_per_byte, copy_per_byte, memory_per_byte, network_per_byte;
    uint64_t step, context_switch; /* step_s, switch_s */
    size_t eager;
    int node_cpus, all_cpus; /* all_cpus 0: one CPU per rank, or node_cpus per node */
    struct sim_link links[DISTI_DISTANCES];

    struct sim_rank *ranks;
    struct sim_node *nodes;
    struct sim_line *node_lines, *rack_lines; /* two per node or rack: outbound, inbound */
    uint32_t node_count, rack_count, lane_count;
    struct sim_cpu *cpus;
    struct sim_lane *lanes;
    uint32_t *routes; /* by send: index of its flow */
    struct sim_flow *flows;

    struct sim_message *messages;
    uint32_t message_count, message_capacity, unused; /* unused: head of a list */
    struct sim_event *heap;
    uint32_t events;
    uint32_t *orders; /* by unit: number of events that it has caused */
    uint32_t unit;    /* the unit of the current event */

    uint64_t now;
    uint64_t steps_done;
    uint64_t chunks[DISTI_DISTANCES]; /* number of chunks sent */
    struct disti_forecast *forecast;
};

/* Converts a number of bytes to a duration in picoseconds, at most about a week. */
#define SIM_TIME_MAX 6e17
#define SIM_SECOND 1e12
static inline uint64_t sim_bytes(double bytes, double per_byte)
{
    double time = bytes * per_byte;
    return time < SIM_TIME_MAX ? (uint64_t)time : (uint64_t)SIM_TIME_MAX;
}

/* Converts seconds to picoseconds. */
static uint64_t machine_time(double seconds)
{
    return seconds > 0 ? sim_bytes(seconds, SIM_SECOND) : 0;
}

static double machine_per_byte(double bytes_per_second)
{
    return bytes_per_second > 0 ? SIM_SECOND / bytes_per_second : 0;
}

/* ---- the machine: ranks, nodes and flows ---- */

static int end_compare(const void *left, const void *right)
{
    const struct sim_end *a = left, *b = right;
    if (a->channel != b->channel)
        return a->channel < b->channel ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* Returns the index of an end in a sorted array of `count` ends, or SIM_NONE. */
static uint32_t sim_end_find(const struct sim_end *ends, uint32_t count, struct sim_end end)
{
    const struct sim_end *found = bsearch(&end, ends, count, sizeof(end), end_compare);
    return found ? (uint32_t)(found - ends) : SIM_NONE;
}

enum disti_distance disti_distance(const struct disti_topology *topology, int one, int other)
{
    const struct dist_place *a = &topology->localities[one], *b = &topology->localities[other];
    int rack = topology->rack_nodes;
    if (a->node != b->node)
        return rack && a->node / rack != b->node / rack ? DISTI_OTHER_RACK : DISTI_OTHER_NODE;
    return a->package == b->package && a->numa == b->numa ? DISTI_SAME_NUMA : DISTI_SAME_NODE;
}

/* Finds the flow of each send of the rank. */
static dist_status machine_routes(struct sim *sim, uint32_t rank)
{
    const struct sim_program *program = sim->programs->at[rank];
    const int *order = sim->topology->order;
    for (uint32_t i = 0; i < program->send_count; i++) {
        struct sim_end end = program->sends[i];
        uint32_t to = (rank + end.offset) % sim->programs->ranks, representative = to % sim->count;
        const struct sim_program *other = sim->programs->at[representative];
        struct sim_end back = {sim->programs->ranks - end.offset, end.channel};
        uint32_t flow = sim_end_find(other->recvs, other->recv_count, back);
        if (flow == SIM_NONE)
            return disti_fail(DIST_ERR_INTERNAL,
                              "no rank receives the message from position %u to %u", rank, to);
        flow += sim->ranks[representative].first_flow;
        sim->flows[flow].distance = (uint8_t)disti_distance(sim->topology, order[rank], order[to]);
        sim->routes[sim->ranks[rank].first_send + i] = flow;
    }
    return DIST_OK;
}

static bool machine_allocate(struct sim *sim, uint32_t sends, uint32_t flows)
{
    uint32_t cpus = sim->all_cpus        ? (uint32_t)sim->all_cpus
                    : sim->node_cpus > 0 ? (uint32_t)sim->node_cpus * sim->node_count
                                         : 0;
    sim->ranks = calloc(sim->count, sizeof(*sim->ranks));
    sim->nodes = calloc(sim->node_count, sizeof(*sim->nodes));
    sim->node_lines = calloc(sim->node_count, 2 * sizeof(*sim->node_lines));
    sim->rack_lines = calloc(sim->rack_count + 1, 2 * sizeof(*sim->rack_lines));
    sim->lanes = calloc(sim->lane_count + 1, sizeof(*sim->lanes));
    sim->routes = calloc(sends + 1, sizeof(*sim->routes));
    sim->flows = calloc(flows + 1, sizeof(*sim->flows));
    sim->cpus = calloc(cpus + 1, sizeof(*sim->cpus));
    sim->orders = calloc(sim->count / sim->period, sizeof(*sim->orders));
    return sim->ranks && sim->nodes && sim->node_lines && sim->rack_lines && sim->lanes &&
           sim->routes && sim->flows && sim->cpus && sim->orders;
}

/* Lays out the machine and its flows. If `whole` is true, all ranks are simulated, even if some
 * could represent all ranks. Errors: ERR_NO_MEMORY, ERR_UNSUPPORTED, ERR_INTERNAL. */
static dist_status sim_machine_open(struct sim *sim, size_t bytes, const struct disti_cost *cost,
                                    bool whole)
{
    uint64_t lanes = 0, sends = 0, flows = 0;
    uint32_t lane = 0, send = 0, flow = 0;
    dist_status status = DIST_OK;
    sim->chunk_bytes = (double)bytes / sim->programs->chunks;
    sim->reduce_per_byte = machine_per_byte(cost->reduce_bytes_per_second);
    sim->copy_per_byte = machine_per_byte(cost->copy_bytes_per_second);
    sim->memory_per_byte = machine_per_byte(cost->node_bytes_per_second);
    sim->network_per_byte = machine_per_byte(cost->network_bytes_per_second);
    sim->step = machine_time(cost->step_s);
    sim->context_switch = machine_time(cost->switch_s);
    sim->eager = cost->eager_bytes;
    sim->node_cpus = cost->node_cpus;
    sim->all_cpus = sim->topology->ranks > cost->all_cpus ? cost->all_cpus : 0;
    for (int d = 0; d < DISTI_DISTANCES; d++)
        sim->links[d] =
            (struct sim_link){.latency = machine_time(cost->links[d].latency_s),
                              .overhead = machine_time(cost->links[d].overhead_s),
                              .per_byte = machine_per_byte(cost->links[d].bytes_per_second)};
    sim->period = sim->all_cpus ? sim->programs->ranks : sim->programs->period;
    sim->count = whole ? sim->programs->ranks : sim->period;
    for (uint32_t i = 0; i < sim->count; i++) {
        const struct sim_program *program = sim->programs->at[i];
        lanes += program->lane_count;
        sends += program->send_count;
        flows += program->recv_count;
    }
    if (lanes > SIM_STEPS_MAX)
        return disti_fail(
            DIST_ERR_UNSUPPORTED,
            "%u ranks have %llu lanes, but at most %u can be simulated: use fewer ranks",
            sim->count, (unsigned long long)lanes, SIM_STEPS_MAX);
    sim->node_count =
        (uint32_t)disti_node_of(sim->topology, sim->topology->order[sim->count - 1]) + 1;
    if (sim->topology->rack_nodes)
        sim->rack_count = (sim->node_count - 1) / (uint32_t)sim->topology->rack_nodes + 1;
    sim->lane_count = (uint32_t)lanes;
    if (!machine_allocate(sim, (uint32_t)sends, (uint32_t)flows))
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory to simulate %u ranks", sim->count);
    for (uint32_t n = 0; n < sim->node_count; n++) {
        struct sim_node *node = &sim->nodes[n];
        node->cpu_count = sim->all_cpus ? sim->all_cpus : sim->node_cpus;
        if (sim->all_cpus)
            node->cpus = sim->cpus;
        else if (sim->node_cpus > 0 && disti_node_size(sim->topology, (int)n) > sim->node_cpus)
            node->cpus = sim->cpus + n * (uint32_t)sim->node_cpus; /* more ranks than CPUs */
    }
    for (uint32_t n = 0; n < 2 * sim->node_count; n++)
        sim->node_lines[n].per_byte = sim->links[DISTI_OTHER_NODE].per_byte;
    for (uint32_t n = 0; n < 2 * sim->rack_count; n++)
        sim->rack_lines[n].per_byte = sim->links[DISTI_OTHER_RACK].per_byte;
    for (uint32_t i = 0; i < sim->count; i++) {
        const struct sim_program *program = sim->programs->at[i];
        sim->ranks[i] = (struct sim_rank){
            .node = (uint32_t)disti_node_of(sim->topology, sim->topology->order[i]),
            .first_lane = lane,
            .first_send = send,
            .first_flow = flow};
        for (uint32_t l = 0; l < program->lane_count; l++)
            sim->lanes[lane++] = (struct sim_lane){.rank = i, .waiters = SIM_NONE};
        for (uint32_t w = 0; w < program->recv_count; w++)
            sim->flows[flow++] = (struct sim_flow){.rank = i, .lane = SIM_NONE, .sender = SIM_NONE};
        send += program->send_count;
    }
    for (uint32_t i = 0; i < sim->count && status == DIST_OK; i++)
        status = machine_routes(sim, i);
    return status;
}

/* ---- CPU and memory time ---- */

/*
 * Occupies the rank for `work` picoseconds, from `from` at the earliest. Meanwhile the rank
 * transfers data through its node's memory, which is busy with them for `memory` picoseconds.
 * Stores the start in *start_p and returns the end.
 *
 * The memory is reserved from the current time, even if the rank starts later. Since memory_free is
 * a single time, a reservation that begins later would also keep other ranks from using the memory
 * before that.
 */
static uint64_t sim_work(struct sim *sim, uint32_t rank, uint64_t from, uint64_t work,
                         uint64_t memory, uint64_t *start_p)
{
    struct sim_rank *r = &sim->ranks[rank];
    struct sim_node *node = &sim->nodes[r->node];
    struct sim_cpu *cpu = NULL;
    uint64_t begin = from > r->free ? from : r->free, start = begin;
    bool wakes = from > r->free || !r->free;
    /*
     * Selects the CPU that can run the rank first. A context switch is needed if the rank must wake
     * up on a CPU that last ran another rank. A rank that is still busy at `from` does not sleep:
     * it continues with this work.
     */
    for (int i = 0; i < node->cpu_count && node->cpus; i++) {
        struct sim_cpu *other = &node->cpus[i];
        uint64_t at = begin > other->free ? begin : other->free;
        if (wakes && other->last != rank + 1 && other->last != 0)
            at += sim->context_switch;
        if (!cpu || at < start) {
            cpu = other;
            start = at;
        }
    }
    uint64_t end = start + work;
    if (memory) {
        node->memory_free = (sim->now > node->memory_free ? sim->now : node->memory_free) + memory;
        if (end < node->memory_free)
            end = node->memory_free;
    }
    if (cpu)
        *cpu = (struct sim_cpu){.free = end, .last = rank + 1};
    r->busy += end - start;
    r->free = end;
    *start_p = start;
    return end;
}

/* ---- programs: conversion of plans; equal programs are kept once ---- */

/* ---- the program of one plan ---- */

/* Buffers in which a program is built, reused for each program. */
struct draft {
    const struct disti_topology *topology;
    const struct disti_plan *plan;
    struct sim_program program;
    struct sim_span *lanes;
    struct sim_step *steps;
    struct sim_end *sends, *recvs;
    size_t lane_capacity, step_capacity;
};

static bool draft_reserve(struct draft *draft)
{
    const struct disti_plan *plan = draft->plan;
    if (plan->lane_count >= draft->lane_capacity) {
        free(draft->lanes);
        draft->lane_capacity = plan->lane_count + 1;
        draft->lanes = malloc(draft->lane_capacity * sizeof(*draft->lanes));
    }
    if (plan->step_count >= draft->step_capacity) {
        free(draft->steps);
        free(draft->sends);
        free(draft->recvs);
        draft->step_capacity = plan->step_count + 1;
        draft->steps = malloc(draft->step_capacity * sizeof(*draft->steps));
        draft->sends = malloc(draft->step_capacity * sizeof(*draft->sends));
        draft->recvs = malloc(draft->step_capacity * sizeof(*draft->recvs));
    }
    return draft->lanes && draft->steps && draft->sends && draft->recvs;
}

static struct sim_end draft_end(const struct draft *draft, const struct disti_lane *lane,
                                const struct disti_step *step)
{
    const int *position = draft->topology->position;
    int offset = position[step->peer] - position[draft->plan->rank];
    if (offset < 0)
        offset += draft->plan->ranks;
    return (struct sim_end){(uint32_t)offset, lane->channel};
}

/* Adds an end. Most lanes communicate with one peer many times, so recent duplicates are
 * skipped. */
static void draft_add(struct sim_end *ends, uint32_t *count, struct sim_end end)
{
    uint32_t n = *count;
    for (uint32_t back = 1; back <= 4 && back <= n; back++)
        if (end_compare(&ends[n - back], &end) == 0)
            return;
    ends[(*count)++] = end;
}

/* Sorts the ends and removes duplicates. */
static void draft_sort(struct sim_end *ends, uint32_t *count)
{
    uint32_t kept = 0;
    qsort(ends, *count, sizeof(*ends), end_compare);
    for (uint32_t i = 0; i < *count; i++)
        if (i == 0 || end_compare(&ends[i], &ends[i - 1]) != 0)
            ends[kept++] = ends[i];
    *count = kept;
}

static uint64_t draft_mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

/* Collects the ends, then writes the steps, which refer to ends by index. */
static void draft_steps(struct draft *draft)
{
    const struct disti_plan *plan = draft->plan;
    struct sim_program *program = &draft->program;
    uint64_t hash = plan->lane_count;
    for (uint32_t l = 0; l < plan->lane_count; l++) {
        const struct disti_lane *lane = &plan->lanes[l];
        for (uint32_t i = 0; i < lane->count; i++) {
            const struct disti_step *step = &plan->steps[lane->first + i];
            if (step->kind == DISTI_SEND)
                draft_add(draft->sends, &program->send_count, draft_end(draft, lane, step));
            else if (disti_step_has_peer(step))
                draft_add(draft->recvs, &program->recv_count, draft_end(draft, lane, step));
        }
    }
    draft_sort(draft->sends, &program->send_count);
    draft_sort(draft->recvs, &program->recv_count);
    for (uint32_t l = 0; l < plan->lane_count; l++) {
        const struct disti_lane *lane = &plan->lanes[l];
        draft->lanes[l] = (struct sim_span){lane->first, lane->count};
        hash = draft_mix(hash, lane->count);
        for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
            const struct disti_step *step = &plan->steps[i];
            struct sim_step *own = &draft->steps[i];
            *own = (struct sim_step){.end = SIM_NONE,
                                     .chunks = step->chunks,
                                     .wait_step = step->wait_step,
                                     .wait_lane = step->wait_lane,
                                     .kind = step->kind};
            if (step->kind == DISTI_SEND)
                own->end =
                    sim_end_find(draft->sends, program->send_count, draft_end(draft, lane, step));
            else if (disti_step_has_peer(step))
                own->end =
                    sim_end_find(draft->recvs, program->recv_count, draft_end(draft, lane, step));
            hash = draft_mix(hash, (uint64_t)own->end << 32 | own->chunks);
            hash = draft_mix(hash, (uint64_t)own->wait_step << 32 | (uint64_t)own->wait_lane << 8 |
                                       own->kind);
        }
    }
    program->hash = hash;
}

/* ---- the set of programs ---- */

static bool program_same(const struct sim_program *a, const struct sim_program *b)
{
    return a->hash == b->hash && a->lane_count == b->lane_count && a->step_count == b->step_count &&
           a->send_count == b->send_count && a->recv_count == b->recv_count &&
           !memcmp(a->lanes, b->lanes, a->lane_count * sizeof(*a->lanes)) &&
           !memcmp(a->sends, b->sends, a->send_count * sizeof(*a->sends)) &&
           !memcmp(a->recvs, b->recvs, a->recv_count * sizeof(*a->recvs)) &&
           !memcmp(a->steps, b->steps, a->step_count * sizeof(*a->steps));
}

static dist_status programs_keep(struct sim_programs *programs, uint32_t position,
                                 const struct sim_program *draft)
{
    struct sim_program **bucket = &programs->buckets[draft->hash % programs->bucket_count];
    for (struct sim_program *kept = *bucket; kept; kept = kept->next)
        if (program_same(kept, draft)) {
            programs->at[position] = kept;
            return DIST_OK;
        }
    programs->kept_steps += draft->step_count;
    if (programs->kept_steps > SIM_KEPT_MAX)
        return DIST_ERR_UNSUPPORTED;
    /* [program][steps][lanes][sends][recvs] in one allocation */
    size_t steps = draft->step_count * sizeof(*draft->steps);
    size_t lanes = draft->lane_count * sizeof(*draft->lanes);
    size_t sends = draft->send_count * sizeof(*draft->sends);
    size_t recvs = draft->recv_count * sizeof(*draft->recvs);
    struct sim_program *program = malloc(sizeof(*program) + steps + lanes + sends + recvs);
    if (!program)
        return DIST_ERR_NO_MEMORY;
    *program = *draft;
    char *at = (char *)(program + 1);
    program->steps = memcpy(at, draft->steps, steps);
    program->lanes = memcpy(at += steps, draft->lanes, lanes);
    program->sends = memcpy(at += lanes, draft->sends, sends);
    program->recvs = memcpy(at += sends, draft->recvs, recvs);
    program->next = *bucket;
    programs->at[position] = *bucket = program;
    return DIST_OK;
}

#define PROGRAMS_SEEN 16
static dist_status programs_rank(struct sim_programs *programs, struct draft *draft,
                                 const struct disti_algorithm *algorithm,
                                 const struct disti_shape *shape, uint32_t position)
{
    struct disti_shape own = *shape;
    struct disti_plan *plan = NULL;
    own.rank = shape->topology->order[position];
    dist_status status = disti_plan_write(algorithm, &own, &plan);
    if (status != DIST_OK)
        return status;
    draft->plan = plan;
    programs->chunks = plan->chunks;
    if (draft_reserve(draft)) {
        draft->program = (struct sim_program){.lane_count = plan->lane_count,
                                              .step_count = plan->step_count,
                                              .lanes = draft->lanes,
                                              .steps = draft->steps,
                                              .sends = draft->sends,
                                              .recvs = draft->recvs};
        draft_steps(draft);
        status = programs_keep(programs, position, &draft->program);
        programs->steps += plan->step_count;
        if (position == 0 || plan->step_count < programs->shortest)
            programs->shortest = plan->step_count;
        /*
         * Rejects too many steps: the plans so far have too many, or all plans together would if
         * each had as many as the shortest so far.
         */
        uint64_t all = (uint64_t)programs->shortest * programs->period;
        if (status == DIST_OK && (programs->steps > SIM_STEPS_MAX ||
                                  (position + 1 >= PROGRAMS_SEEN && all > SIM_STEPS_MAX)))
            status = DIST_ERR_UNSUPPORTED;
    } else {
        status = DIST_ERR_NO_MEMORY;
    }
    disti_plan_free(plan);
    if (status == DIST_ERR_NO_MEMORY)
        disti_fail(status, "no memory to simulate %d ranks", shape->ranks);
    if (status == DIST_ERR_UNSUPPORTED)
        disti_fail(status,
                   "the plans of %s for %d ranks and %u segments are too long to simulate: use "
                   "fewer segments or fewer ranks",
                   algorithm->name, shape->ranks, shape->segments);
    return status;
}

/*
 * Writes the plans of the ranks that represent all ranks. Errors: ERR_NO_MEMORY, ERR_UNSUPPORTED.
 *
 * If all nodes are alike and every rank does the same as its counterpart on the next node, the
 * ranks of one node represent all ranks: messages to the next node are received as if they came
 * from the previous node.
 *
 *   0 1 2 3 | 4 5 6 7 | 8 9 10 11          0 1 2 3
 *         3 -> 4    7 -> 8    11 -> 0            3 -> 0    over the network, not inside the node
 *
 * If there are racks, the ranks of one rack represent all ranks.
 */
static dist_status sim_programs_write(const struct disti_algorithm *algorithm,
                                      const struct disti_shape *shape,
                                      struct sim_programs *programs)
{
    struct draft draft = {.topology = shape->topology};
    dist_status status = DIST_OK;
    programs->ranks = (uint32_t)shape->ranks;
    const struct disti_topology *t = shape->topology;
    uint32_t period = (uint32_t)(disti_node_size(t, 0) * (t->rack_nodes ? t->rack_nodes : 1));
    bool alike = t->uniform && programs->ranks % period == 0;
    for (uint32_t i = period; i < programs->ranks && alike; i++) {
        const struct dist_place *a = &t->localities[t->order[i]],
                                *b = &t->localities[t->order[i - period]];
        alike = a->package == b->package && a->numa == b->numa;
    }
    period = alike ? period : programs->ranks;
    programs->period = algorithm->symmetric ? period : programs->ranks;
    programs->bucket_count = 64;
    while (programs->bucket_count < programs->period)
        programs->bucket_count *= 2;
    programs->at = calloc(programs->ranks, sizeof(*programs->at));
    programs->buckets = calloc(programs->bucket_count, sizeof(*programs->buckets));
    if (!programs->at || !programs->buckets)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory to simulate %d ranks", shape->ranks);
    for (uint32_t i = 0; i < programs->period && status == DIST_OK; i++)
        status = programs_rank(programs, &draft, algorithm, shape, i);
    for (uint32_t i = programs->period; i < programs->ranks; i++)
        programs->at[i] = programs->at[i - programs->period];
    /* Some algorithms are symmetric only with some numbers of ranks. */
    bool symmetric = status == DIST_OK;
    for (uint32_t i = period; i < programs->ranks && symmetric; i++)
        symmetric = programs->at[i] == programs->at[i - period];
    if (symmetric)
        programs->period = period;
    free(draft.lanes);
    free(draft.steps);
    free(draft.sends);
    free(draft.recvs);
    return status;
}

/* ---- the event heap: the earliest event first, 4 children per entry ---- */

static inline bool event_before(const struct sim_event *a, const struct sim_event *b)
{
    return a->time != b->time ? a->time < b->time : a->order < b->order;
}

/* The heap has room for every lane and every message (message_capacity). */
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

/* Ensures room for one more message and for the events of all messages and lanes. */
static bool message_capacity(struct sim *sim)
{
    if (sim->unused != SIM_NONE || sim->message_count < sim->message_capacity)
        return true;
    uint32_t capacity = sim->message_capacity * 2 + 64;
    void *messages = realloc(sim->messages, capacity * sizeof(*sim->messages));
    if (messages)
        sim->messages = messages;
    void *heap = realloc(sim->heap, ((size_t)capacity + sim->lane_count) * sizeof(*sim->heap));
    if (heap)
        sim->heap = heap;
    if (!messages || !heap || capacity >= SIM_MESSAGE)
        return false;
    sim->message_capacity = capacity;
    return true;
}

static inline uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- receiving ---- */

/* Time to copy or reduce `bytes`. Short data that have just arrived are in a cache. */
static uint64_t run_vector(double bytes, double per_byte)
{
    return sim_bytes(bytes, bytes <= DISTI_CACHED_BYTES ? per_byte / DISTI_CACHED_TIMES : per_byte);
}

/* CPU time for the first or last piece of a message between nodes. */
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
 * The lane receives its message. The first byte has arrived at time `head`, the last byte at
 * `tail`, both not later than now. Between nodes, data are reduced while they arrive. Inside a
 * node, the receiver first copies them.
 */
static void run_receive(struct sim *sim, uint32_t lane, struct sim_flow *flow, uint64_t head,
                        uint64_t tail)
{
    const struct sim_step *step = lane_step(sim, lane);
    const struct sim_link *link = &sim->links[flow->distance];
    double bytes = step->chunks * sim->chunk_bytes;
    uint64_t start, engine = sim->step + link->overhead, work = 0, memory = 0;
    if (step->kind == DISTI_RECV_REDUCE) {
        work += run_vector(bytes, sim->reduce_per_byte);
        memory += sim_bytes(bytes, sim->memory_per_byte);
    }
    if (flow->distance < DISTI_OTHER_NODE) {
        work += sim_bytes(bytes, link->per_byte);
        memory += sim_bytes(bytes, sim->memory_per_byte);
    } else {
        work += sim_bytes(bytes, sim->network_per_byte);
        engine += run_piece(sim, bytes);
        work -= run_piece(sim, bytes);
    }
    uint64_t posted = sim->lanes[lane].since;
    uint64_t end = sim_work(sim, flow->rank, later(posted, head), work + engine, memory, &start);
    if (end < tail + engine)
        end = sim->ranks[flow->rank].free = tail + engine;
    event_put(sim, end, lane);
    if (flow->arrived == 0 && flow->sender != SIM_NONE) {
        event_put(sim, end, flow->sender);
        flow->sender = SIM_NONE;
    }
}

/* ---- sending ---- */

/* Returns the line of the message's next stage, or NULL if it has passed the last line or uses
 * none. */
static struct sim_line *message_line(const struct sim *sim, const struct sim_message *message)
{
    const struct sim_flow *flow = &sim->flows[message->flow];
    uint32_t from = sim->ranks[sim->lanes[message->lane].rank].node;
    uint32_t to = sim->ranks[flow->rank].node, rack = (uint32_t)sim->topology->rack_nodes;
    if (flow->distance < DISTI_OTHER_NODE)
        return NULL;
    switch (message->stage + (flow->distance == DISTI_OTHER_NODE && message->stage > 0 ? 2 : 0)) {
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

/* The message's first byte has reached the next line, or the whole message has arrived. A message
 * is forwarded byte by byte, so it can occupy two lines at once. */
static void run_message(struct sim *sim, uint32_t number)
{
    struct sim_message *message = &sim->messages[number];
    struct sim_line *line = message_line(sim, message);
    if (!line) {
        struct sim_flow *flow = &sim->flows[message->flow];
        uint32_t lane = flow->lane;
        if (message->blocks)
            flow->sender = message->lane;
        if (lane == SIM_NONE)
            flow->arrived++;
        else {
            flow->lane = SIM_NONE;
            run_receive(sim, lane, flow, message->head, message->tail);
        }
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
        uint64_t latency = sim->links[sim->flows[message->flow].distance].latency;
        event_put(sim, later(message->sent, message->tail), message->lane);
        message->head += latency;
        message->tail += latency;
    }
    event_put(sim, message_line(sim, message) ? message->head : message->tail,
              SIM_MESSAGE | number);
}

static dist_status run_send(struct sim *sim, uint32_t lane, const struct sim_step *step)
{
    if (!message_capacity(sim))
        return DIST_ERR_NO_MEMORY;
    uint32_t rank = sim->lanes[lane].rank, number = sim->unused;
    if (number == SIM_NONE)
        number = sim->message_count++;
    else
        sim->unused = sim->messages[number].lane;
    uint32_t flow = sim->routes[sim->ranks[rank].first_send + step->end];
    uint8_t distance = sim->flows[flow].distance;
    const struct sim_link *link = &sim->links[distance];
    double bytes = step->chunks * sim->chunk_bytes;
    bool inside = distance < DISTI_OTHER_NODE;
    uint64_t put = inside ? 0 : sim_bytes(bytes, sim->network_per_byte);
    uint64_t start;
    uint64_t end = sim_work(sim, rank, sim->now, sim->step + link->overhead + put, 0, &start);
    uint64_t begin = start + sim->step + (inside ? link->latency : run_piece(sim, bytes));
    sim->messages[number] = (struct sim_message){.lane = lane,
                                                 .flow = flow,
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

/* Begins the lane's next step, unless it must wait. */
static dist_status run_begin(struct sim *sim, uint32_t lane)
{
    struct sim_lane *l = &sim->lanes[lane];
    const struct sim_rank *rank = &sim->ranks[l->rank];
    if (l->next == sim->programs->at[l->rank]->lanes[lane - rank->first_lane].count)
        return DIST_OK;
    const struct sim_step *step = lane_step(sim, lane);
    struct sim_lane *other =
        step->wait_lane == DISTI_NO_LANE ? NULL : &sim->lanes[rank->first_lane + step->wait_lane];
    if (other && other->next <= step->wait_step) {
        /* Adds the lane to the list of the lane that it waits for. */
        if (other->waiters == SIM_NONE || step->wait_step < other->awaited)
            other->awaited = step->wait_step;
        l->next_waiter = other->waiters;
        other->waiters = lane;
        return DIST_OK;
    }
    if (step->kind == DISTI_SEND)
        return run_send(sim, lane, step);
    if (step->kind == DISTI_RECV || step->kind == DISTI_RECV_REDUCE) {
        struct sim_flow *flow = &sim->flows[rank->first_flow + step->end];
        sim->lanes[lane].since = sim->now;
        if (flow->arrived == 0)
            flow->lane = lane;
        else {
            flow->arrived--;
            run_receive(sim, lane, flow, sim->now, sim->now);
        }
        return DIST_OK;
    }
    double bytes = step->chunks * sim->chunk_bytes;
    uint64_t start, work = run_vector(bytes, step->kind == DISTI_REDUCE ? sim->reduce_per_byte
                                                                        : sim->copy_per_byte);
    event_put(sim,
              sim_work(sim, l->rank, sim->now, sim->step + work,
                       sim_bytes(bytes, sim->memory_per_byte), &start),
              lane);
    return DIST_OK;
}

/* The lane's step has ended: begins its next step, and re-examines the lanes that waited for it. */
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

/* Runs all programs until there are no events. Errors: ERR_NO_MEMORY. */
static dist_status sim_run(struct sim *sim)
{
    dist_status status = message_capacity(sim) ? DIST_OK : DIST_ERR_NO_MEMORY;
    bool units = sim->count > sim->period;
    for (uint32_t lane = 0; lane < sim->lane_count && status == DIST_OK; lane++) {
        sim->unit = sim->lanes[lane].rank / sim->period;
        status = run_begin(sim, lane);
    }
    while (sim->events > 0 && status == DIST_OK) {
        struct sim_event event = event_take(sim);
        sim->now = event.time;
        if (units) {
            /* The rank of the lane, or the rank whose lines or CPU the message is about to use. */
            uint32_t rank;
            if (event.target & SIM_MESSAGE) {
                const struct sim_message *message = &sim->messages[event.target & ~SIM_MESSAGE];
                const struct sim_flow *flow = &sim->flows[message->flow];
                int sender_stages = flow->distance == DISTI_OTHER_RACK ? 2 : 1;
                bool sends = message->stage < sender_stages;
                rank = sends ? sim->lanes[message->lane].rank : flow->rank;
            } else
                rank = sim->lanes[event.target].rank;
            sim->unit = rank / sim->period;
        }
        if (event.target & SIM_MESSAGE)
            run_message(sim, event.target & ~SIM_MESSAGE);
        else
            status = run_advance(sim, event.target);
    }
    return status;
}

/* ---- the simulator ---- */

/*
 * Values of a typical older server with Ethernet:
 *
 *   - inside a node: a message through the rings of shared memory, measured with two ranks on
 *     neighbouring cores; across NUMA nodes about twice the time
 *   - between nodes: TCP over 10 Gbit/s, of which 94 % are data in frames of 1500 bytes; half a
 *     round trip through two kernels and a switch takes about 20 us, 5 us of which are CPU time
 *     on each side
 *   - between racks: two more switches, and an uplink of 4 times 10 Gbit/s
 *   - memory: one core copies about 8 GB/s out of its caches and reduces as fast; all cores
 *     share about 4 channels of 20 GB/s, and a copy transfers every byte three times (read,
 *     read for ownership, write)
 *   - the kernel's part of a send (a copy and packets) takes about twice as long as a copy
 *   - a context switch takes 1 to 2 us
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
                           uint64_t represented, struct disti_traffic *traffic)
{
    double waited = 0; /* sum of whole picoseconds: exact up to some hours */
    for (uint32_t i = 0; i < count; i++) {
        double busy = (double)lines[i].busy / (sim->now ? (double)sim->now : 1);
        traffic->busiest = busy > traffic->busiest ? busy : traffic->busiest;
        waited += (double)lines[i].waited;
    }
    traffic->waited_s += waited * (double)represented / SIM_SECOND;
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
    dist_status status = sim_programs_write(algorithm, shape, &simulation->programs);
    if (status == DIST_OK)
        *simulation_p = simulation;
    else
        disti_simulation_close(simulation);
    return status;
}

void disti_simulation_close(struct disti_simulation *simulation)
{
    if (!simulation)
        return;
    struct sim_programs *programs = &simulation->programs;
    for (uint32_t b = 0; programs->buckets && b < programs->bucket_count; b++)
        while (programs->buckets[b]) {
            struct sim_program *next = programs->buckets[b]->next;
            free(programs->buckets[b]);
            programs->buckets[b] = next;
        }
    free(programs->buckets);
    free(programs->at);
    free(simulation);
}

dist_status disti_sim_run(const struct disti_simulation *simulation, size_t bytes, bool whole,
                          const struct disti_cost *cost, struct disti_forecast *forecast_p)
{
    struct disti_forecast forecast = {0};
    struct sim sim = {.programs = &simulation->programs,
                      .topology = simulation->topology,
                      .unused = SIM_NONE,
                      .forecast = &forecast};
    if (simulation->collective == DIST_COLL_BARRIER) /* moves no data */
        bytes = 0;
    dist_status status = sim_machine_open(&sim, bytes, cost, whole);
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
    /* The number of ranks that each simulated rank represents. */
    uint64_t represented = sim.programs->ranks / sim.count, busy = 0;
    struct disti_traffic *links = forecast.links;
    simulate_lines(&sim, sim.node_lines, 2 * sim.node_count, represented, &links[DISTI_OTHER_NODE]);
    simulate_lines(&sim, sim.rack_lines, 2 * sim.rack_count, represented, &links[DISTI_OTHER_RACK]);
    for (int d = 0; d < DISTI_DISTANCES; d++) {
        links[d].messages *= represented;
        links[d].bytes = (double)(sim.chunks[d] * represented) * sim.chunk_bytes;
    }
    for (uint32_t i = 0; i < sim.count; i++)
        busy = sim.ranks[i].busy > busy ? sim.ranks[i].busy : busy;
    forecast.busiest_rank = (double)busy / (sim.now ? (double)sim.now : 1);
    forecast.seconds = (double)sim.now / SIM_SECOND;
    forecast.steps = sim.steps_done * represented;
    forecast.simulated = (int)sim.count;
    *forecast_p = forecast;
out:
    free(sim.ranks);
    free(sim.nodes);
    free(sim.node_lines);
    free(sim.rack_lines);
    free(sim.lanes);
    free(sim.routes);
    free(sim.flows);
    free(sim.cpus);
    free(sim.orders);
    free(sim.messages);
    free(sim.heap);
    return status;
}

dist_status disti_simulation_run(const struct disti_simulation *simulation, size_t bytes,
                                 const struct disti_cost *cost, struct disti_forecast *forecast_p)
{
    return disti_sim_run(simulation, bytes, false, cost, forecast_p);
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
