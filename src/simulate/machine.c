/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine that is simulated: ranks, nodes, lines, wires. */
#include "base/log.h"
#include "simulate/internal.h"

#include <stdlib.h>

/* Picoseconds. */
static uint64_t machine_time(double seconds)
{
    return seconds > 0 ? sim_bytes(seconds, SIM_SECOND) : 0;
}

static double machine_per_byte(double bytes_per_second)
{
    return bytes_per_second > 0 ? SIM_SECOND / bytes_per_second : 0;
}

/* ---- ranks and nodes ---- */

static void machine_costs(struct sim *sim, size_t bytes, const struct disti_cost *cost)
{
    sim->chunk_bytes = (double)bytes / sim->programs->chunks;
    sim->reduce_per_byte = machine_per_byte(cost->reduce_bytes_per_second);
    sim->copy_per_byte = machine_per_byte(cost->copy_bytes_per_second);
    sim->memory_per_byte = machine_per_byte(cost->node_bytes_per_second);
    sim->network_per_byte = machine_per_byte(cost->network_bytes_per_second);
    sim->step = machine_time(cost->step_s);
    sim->change = machine_time(cost->switch_s);
    sim->eager = cost->eager_bytes;
    sim->node_cpus = cost->node_cpus;
    sim->all_cpus = sim->topology->ranks > cost->all_cpus ? cost->all_cpus : 0;
    for (int d = 0; d < DISTI_DISTANCES; d++)
        sim->links[d] =
            (struct sim_link){.latency = machine_time(cost->links[d].latency_s),
                              .overhead = machine_time(cost->links[d].overhead_s),
                              .per_byte = machine_per_byte(cost->links[d].bytes_per_second)};
}

static dist_status machine_count(struct sim *sim)
{
    uint64_t lanes = 0, sends = 0, wires = 0;
    for (uint32_t i = 0; i < sim->count; i++) {
        const struct sim_program *program = sim->programs->at[i];
        lanes += program->lane_count;
        sends += program->send_count;
        wires += program->recv_count;
    }
    if (lanes > SIM_STEPS_MAX)
        return disti_fail(DIST_ERR_UNSUPPORTED,
                          "%u ranks have %llu lanes to simulate, more than %u: give fewer ranks",
                          sim->count, (unsigned long long)lanes, SIM_STEPS_MAX);
    sim->node_count =
        (uint32_t)disti_node_of(sim->topology, sim->topology->order[sim->count - 1]) + 1;
    if (sim->topology->rack_nodes)
        sim->rack_count = (sim->node_count - 1) / (uint32_t)sim->topology->rack_nodes + 1;
    sim->lane_count = (uint32_t)lanes;
    sim->send_count = (uint32_t)sends;
    sim->wire_count = (uint32_t)wires;
    return DIST_OK;
}

static bool machine_allocate(struct sim *sim)
{
    uint32_t cpus = sim->all_cpus        ? (uint32_t)sim->all_cpus
                    : sim->node_cpus > 0 ? (uint32_t)sim->node_cpus * sim->node_count
                                         : 0;
    sim->ranks = calloc(sim->count, sizeof(*sim->ranks));
    sim->nodes = calloc(sim->node_count, sizeof(*sim->nodes));
    sim->node_lines = calloc(sim->node_count, 2 * sizeof(*sim->node_lines));
    sim->rack_lines = calloc(sim->rack_count + 1, 2 * sizeof(*sim->rack_lines));
    sim->lanes = calloc(sim->lane_count + 1, sizeof(*sim->lanes));
    sim->routes = calloc(sim->send_count + 1, sizeof(*sim->routes));
    sim->wires = calloc(sim->wire_count + 1, sizeof(*sim->wires));
    sim->cpus = calloc(cpus + 1, sizeof(*sim->cpus));
    sim->orders = calloc(sim->count / sim->period, sizeof(*sim->orders));
    return sim->ranks && sim->nodes && sim->node_lines && sim->rack_lines && sim->lanes &&
           sim->routes && sim->wires && sim->cpus && sim->orders;
}

/* Ranks share CPUs only where there are more of them. */
static void machine_nodes(struct sim *sim)
{
    for (uint32_t n = 0; n < sim->node_count; n++) {
        struct sim_node *node = &sim->nodes[n];
        node->cpu_count = sim->all_cpus ? sim->all_cpus : sim->node_cpus;
        if (sim->all_cpus)
            node->cpus = sim->cpus;
        else if (sim->node_cpus > 0 && disti_node_size(sim->topology, (int)n) > sim->node_cpus)
            node->cpus = sim->cpus + n * (uint32_t)sim->node_cpus;
    }
    for (uint32_t n = 0; n < 2 * sim->node_count; n++)
        sim->node_lines[n].per_byte = sim->links[DISTI_OTHER_NODE].per_byte;
    for (uint32_t n = 0; n < 2 * sim->rack_count; n++)
        sim->rack_lines[n].per_byte = sim->links[DISTI_OTHER_RACK].per_byte;
}

static void machine_ranks(struct sim *sim)
{
    uint32_t lane = 0, send = 0, wire = 0;
    for (uint32_t i = 0; i < sim->count; i++) {
        const struct sim_program *program = sim->programs->at[i];
        sim->ranks[i] = (struct sim_rank){
            .node = (uint32_t)disti_node_of(sim->topology, sim->topology->order[i]),
            .first_lane = lane,
            .first_send = send,
            .first_wire = wire};
        for (uint32_t l = 0; l < program->lane_count; l++)
            sim->lanes[lane++] = (struct sim_lane){.rank = i, .waiters = SIM_NONE};
        for (uint32_t w = 0; w < program->recv_count; w++)
            sim->wires[wire++] = (struct sim_wire){.rank = i, .lane = SIM_NONE, .sender = SIM_NONE};
        send += program->send_count;
    }
}

/* ---- wires ---- */

static uint8_t machine_distance(const struct disti_topology *t, uint32_t from, uint32_t to)
{
    const struct dist_place *a = &t->localities[t->order[from]], *b = &t->localities[t->order[to]];
    if (a->node != b->node)
        return t->rack_nodes && a->node / t->rack_nodes != b->node / t->rack_nodes
                   ? DISTI_OTHER_RACK
                   : DISTI_OTHER_NODE;
    return a->package == b->package && a->numa == b->numa ? DISTI_SAME_NUMA : DISTI_SAME_NODE;
}

/* Finds for each send of the rank the wire at the receiver. */
static dist_status machine_routes(struct sim *sim, uint32_t rank)
{
    const struct sim_program *program = sim->programs->at[rank];
    for (uint32_t i = 0; i < program->send_count; i++) {
        struct sim_end end = program->sends[i];
        uint32_t to = (rank + end.offset) % sim->programs->ranks, stands = to % sim->count;
        const struct sim_program *other = sim->programs->at[stands];
        struct sim_end back = {sim->programs->ranks - end.offset, end.channel};
        uint32_t wire = disti_sim_end_find(other->recvs, other->recv_count, back);
        if (wire == SIM_NONE)
            return disti_fail(DIST_ERR_INTERNAL, "nobody receives what position %u sends to %u",
                              rank, to);
        wire += sim->ranks[stands].first_wire;
        sim->wires[wire].distance = machine_distance(sim->topology, rank, to);
        sim->routes[sim->ranks[rank].first_send + i] = wire;
    }
    return DIST_OK;
}

dist_status disti_sim_machine_open(struct sim *sim, size_t bytes, const struct disti_cost *cost,
                                   bool whole)
{
    machine_costs(sim, bytes, cost);
    sim->period = sim->all_cpus ? sim->programs->ranks : sim->programs->period;
    sim->count = whole ? sim->programs->ranks : sim->period;
    dist_status status = machine_count(sim);
    if (status != DIST_OK)
        return status;
    if (!machine_allocate(sim))
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory to simulate %u ranks", sim->count);
    machine_nodes(sim);
    machine_ranks(sim);
    for (uint32_t i = 0; i < sim->count && status == DIST_OK; i++)
        status = machine_routes(sim, i);
    return status;
}

void disti_sim_machine_close(struct sim *sim)
{
    free(sim->ranks);
    free(sim->nodes);
    free(sim->node_lines);
    free(sim->rack_lines);
    free(sim->lanes);
    free(sim->routes);
    free(sim->wires);
    free(sim->cpus);
    free(sim->orders);
    free(sim->messages);
    free(sim->heap);
}

/* ---- work ---- */

/*
 * The CPU that can run the rank first: the one it ran on last needs no change. Nor is there one if
 * the rank has its turn, and does what has come up meanwhile.
 */
static struct sim_cpu *work_cpu(const struct sim *sim, const struct sim_node *node, uint32_t rank,
                                bool wakes, uint64_t from, uint64_t *start_p)
{
    struct sim_cpu *best = NULL;
    for (int i = 0; i < node->cpu_count; i++) {
        struct sim_cpu *cpu = &node->cpus[i];
        uint64_t start = from > cpu->free ? from : cpu->free;
        if (wakes && cpu->last != rank + 1 && cpu->last != 0)
            start += sim->change;
        if (!best || start < *start_p) {
            best = cpu;
            *start_p = start;
        }
    }
    return best;
}

/*
 * The memory is claimed as from now, even if the rank comes to it later only: else what a busy rank
 * has claimed for later would keep others from what is free before.
 */
uint64_t disti_sim_work(struct sim *sim, uint32_t rank, uint64_t from, uint64_t work,
                        uint64_t memory, uint64_t *start_p)
{
    struct sim_rank *r = &sim->ranks[rank];
    struct sim_node *node = &sim->nodes[r->node];
    struct sim_cpu *cpu = NULL;
    uint64_t start = from > r->free ? from : r->free;
    if (node->cpus)
        cpu = work_cpu(sim, node, rank, from > r->free || !r->free, start, &start);
    uint64_t end = start + work;
    if (memory) {
        uint64_t begin = sim->now > node->memory_free ? sim->now : node->memory_free;
        node->memory_free = begin + memory;
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
