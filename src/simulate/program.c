/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine that is simulated: ranks, nodes, lines, wires. */
#include "base/log.h"
#include "simulate/internal.h"

#include <stdlib.h>
#include <string.h>

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

static int end_compare(const void *left, const void *right)
{
    const struct sim_end *a = left, *b = right;
    if (a->channel != b->channel)
        return a->channel < b->channel ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* The number of the end among count sorted ones, or SIM_NONE. */
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

/* Finds for each send of the rank the wire at the receiver. */
static dist_status machine_routes(struct sim *sim, uint32_t rank)
{
    const struct sim_program *program = sim->programs->at[rank];
    const int *order = sim->topology->order;
    for (uint32_t i = 0; i < program->send_count; i++) {
        struct sim_end end = program->sends[i];
        uint32_t to = (rank + end.offset) % sim->programs->ranks, stands = to % sim->count;
        const struct sim_program *other = sim->programs->at[stands];
        struct sim_end back = {sim->programs->ranks - end.offset, end.channel};
        uint32_t wire = sim_end_find(other->recvs, other->recv_count, back);
        if (wire == SIM_NONE)
            return disti_fail(DIST_ERR_INTERNAL, "nobody receives what position %u sends to %u",
                              rank, to);
        wire += sim->ranks[stands].first_wire;
        sim->wires[wire].distance = (uint8_t)disti_distance(sim->topology, order[rank], order[to]);
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

/* Programs: plans as the simulator needs them, those that are alike kept once. */

/* ---- one plan's program ---- */

/* Where the program under way is put together; used again for the next one. */
struct draft {
    const struct disti_topology *topology;
    const struct disti_plan *plan;
    struct sim_program program;
    struct sim_span *lanes;
    struct sim_step *steps;
    struct sim_end *sends, *recvs;
    size_t lane_room, step_room;
};

static bool draft_room(struct draft *draft)
{
    const struct disti_plan *plan = draft->plan;
    if (plan->lane_count >= draft->lane_room) {
        free(draft->lanes);
        draft->lane_room = plan->lane_count + 1;
        draft->lanes = malloc(draft->lane_room * sizeof(*draft->lanes));
    }
    if (plan->step_count >= draft->step_room) {
        free(draft->steps);
        free(draft->sends);
        free(draft->recvs);
        draft->step_room = plan->step_count + 1;
        draft->steps = malloc(draft->step_room * sizeof(*draft->steps));
        draft->sends = malloc(draft->step_room * sizeof(*draft->sends));
        draft->recvs = malloc(draft->step_room * sizeof(*draft->recvs));
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

/* Sorted, each once. Most lanes talk to one peer many times, so repetitions are left out first. */
static uint32_t draft_sorted(struct sim_end *ends, uint32_t count)
{
    uint32_t kept = 0;
    qsort(ends, count, sizeof(*ends), end_compare);
    for (uint32_t i = 0; i < count; i++)
        if (i == 0 || end_compare(&ends[i], &ends[i - 1]) != 0)
            ends[kept++] = ends[i];
    return kept;
}

static void draft_add(struct sim_end *ends, uint32_t *count, struct sim_end end)
{
    uint32_t n = *count;
    for (uint32_t back = 1; back <= 4 && back <= n; back++)
        if (end_compare(&ends[n - back], &end) == 0)
            return;
    ends[(*count)++] = end;
}

static void draft_ends(struct draft *draft)
{
    const struct disti_plan *plan = draft->plan;
    uint32_t sends = 0, recvs = 0;
    for (uint32_t l = 0; l < plan->lane_count; l++) {
        const struct disti_lane *lane = &plan->lanes[l];
        for (uint32_t i = 0; i < lane->count; i++) {
            const struct disti_step *step = &plan->steps[lane->first + i];
            if (step->kind == DISTI_SEND)
                draft_add(draft->sends, &sends, draft_end(draft, lane, step));
            else if (disti_step_talks(step))
                draft_add(draft->recvs, &recvs, draft_end(draft, lane, step));
        }
    }
    draft->program.send_count = draft_sorted(draft->sends, sends);
    draft->program.recv_count = draft_sorted(draft->recvs, recvs);
}

static uint64_t draft_mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

static void draft_step(struct draft *draft, const struct disti_lane *lane, uint32_t number)
{
    const struct disti_step *step = &draft->plan->steps[number];
    struct sim_step own = {.end = SIM_NONE,
                           .chunks = step->chunks,
                           .wait_step = step->wait_step,
                           .wait_lane = step->wait_lane,
                           .kind = step->kind};
    struct sim_program *program = &draft->program;
    if (step->kind == DISTI_SEND)
        own.end = sim_end_find(draft->sends, program->send_count, draft_end(draft, lane, step));
    else if (disti_step_talks(step))
        own.end = sim_end_find(draft->recvs, program->recv_count, draft_end(draft, lane, step));
    draft->steps[number] = own;
    program->hash = draft_mix(program->hash, (uint64_t)own.end << 32 | own.chunks);
    program->hash = draft_mix(program->hash, (uint64_t)own.wait_step << 32 |
                                                 (uint64_t)own.wait_lane << 8 | own.kind);
}

static void draft_steps(struct draft *draft)
{
    const struct disti_plan *plan = draft->plan;
    draft->program.hash = plan->lane_count;
    for (uint32_t l = 0; l < plan->lane_count; l++) {
        const struct disti_lane *lane = &plan->lanes[l];
        draft->lanes[l] = (struct sim_span){lane->first, lane->count};
        draft->program.hash = draft_mix(draft->program.hash, lane->count);
        for (uint32_t i = 0; i < lane->count; i++)
            draft_step(draft, lane, lane->first + i);
    }
}

/* ---- keeping ---- */

static bool program_same(const struct sim_program *a, const struct sim_program *b)
{
    return a->hash == b->hash && a->lane_count == b->lane_count && a->step_count == b->step_count &&
           a->send_count == b->send_count && a->recv_count == b->recv_count &&
           !memcmp(a->lanes, b->lanes, a->lane_count * sizeof(*a->lanes)) &&
           !memcmp(a->sends, b->sends, a->send_count * sizeof(*a->sends)) &&
           !memcmp(a->recvs, b->recvs, a->recv_count * sizeof(*a->recvs)) &&
           !memcmp(a->steps, b->steps, a->step_count * sizeof(*a->steps));
}

/* [program][steps][lanes][sends][recvs] in one allocation; NULL: no memory. */
static struct sim_program *program_copy(const struct sim_program *draft)
{
    size_t steps = draft->step_count * sizeof(*draft->steps);
    size_t lanes = draft->lane_count * sizeof(*draft->lanes);
    size_t sends = draft->send_count * sizeof(*draft->sends);
    size_t recvs = draft->recv_count * sizeof(*draft->recvs);
    struct sim_program *program = malloc(sizeof(*program) + steps + lanes + sends + recvs);
    if (!program)
        return NULL;
    *program = *draft;
    char *at = (char *)(program + 1);
    program->steps = memcpy(at, draft->steps, steps);
    program->lanes = memcpy(at += steps, draft->lanes, lanes);
    program->sends = memcpy(at += lanes, draft->sends, sends);
    program->recvs = memcpy(at += sends, draft->recvs, recvs);
    return program;
}

/* Too many steps, by those so far, or if the others have as many as the least of these? */
#define PROGRAMS_SEEN 16
static bool programs_long(struct sim_programs *programs, uint32_t seen, uint32_t steps)
{
    programs->steps += steps;
    if (seen == 1 || steps < programs->shortest)
        programs->shortest = steps;
    uint64_t all = (uint64_t)programs->shortest * programs->period;
    return programs->steps > SIM_STEPS_MAX || (seen >= PROGRAMS_SEEN && all > SIM_STEPS_MAX);
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
    struct sim_program *program = program_copy(draft);
    if (!program)
        return DIST_ERR_NO_MEMORY;
    program->next = *bucket;
    programs->at[position] = *bucket = program;
    return DIST_OK;
}

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
    if (draft_room(draft)) {
        draft->program = (struct sim_program){.lane_count = plan->lane_count,
                                              .step_count = plan->step_count,
                                              .lanes = draft->lanes,
                                              .steps = draft->steps,
                                              .sends = draft->sends,
                                              .recvs = draft->recvs};
        draft_ends(draft);
        draft_steps(draft);
        status = programs_keep(programs, position, &draft->program);
        if (status == DIST_OK && programs_long(programs, position + 1, plan->step_count))
            status = DIST_ERR_UNSUPPORTED;
    } else {
        status = DIST_ERR_NO_MEMORY;
    }
    disti_plan_free(plan);
    if (status == DIST_ERR_NO_MEMORY)
        disti_fail(status, "no memory to simulate %d ranks", shape->ranks);
    if (status == DIST_ERR_UNSUPPORTED)
        disti_fail(status,
                   "the plans of %s for %d ranks, segments: %u, are too long to simulate: give "
                   "fewer segments or fewer ranks",
                   algorithm->name, shape->ranks, shape->segments);
    return status;
}

/*
 * Where all nodes are alike and every rank does the same as the one a node further, the ranks of
 * one node stand for all: what they send to the next node comes from the node before.
 *
 *   0 1 2 3 | 4 5 6 7 | 8 9 10 11          0 1 2 3
 *         3 -> 4    7 -> 8    11 -> 0            3 -> 0    over the line, not inside the node
 *
 * If there are racks, the ranks of one rack do.
 */
static uint32_t programs_period(const struct disti_topology *t)
{
    int period = disti_node_size(t, 0) * (t->rack_nodes ? t->rack_nodes : 1);
    if (!t->uniform || t->ranks % period)
        period = t->ranks;
    for (int i = period; i < t->ranks; i++) {
        const struct dist_place *a = &t->localities[t->order[i]],
                                *b = &t->localities[t->order[i - period]];
        if (a->package != b->package || a->numa != b->numa)
            return (uint32_t)t->ranks;
    }
    return (uint32_t)period;
}

/* Some algorithms turn with some numbers of ranks only. */
static bool programs_turn(const struct sim_programs *programs, uint32_t period)
{
    for (uint32_t i = period; i < programs->ranks; i++)
        if (programs->at[i] != programs->at[i - period])
            return false;
    return true;
}

dist_status disti_sim_programs_write(const struct disti_algorithm *algorithm,
                                     const struct disti_shape *shape, struct sim_programs *programs)
{
    struct draft draft = {.topology = shape->topology};
    dist_status status = DIST_OK;
    programs->ranks = (uint32_t)shape->ranks;
    uint32_t period = programs_period(shape->topology);
    programs->period = algorithm->turns ? period : programs->ranks;
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
    if (status == DIST_OK && programs_turn(programs, period))
        programs->period = period;
    free(draft.lanes);
    free(draft.steps);
    free(draft.sends);
    free(draft.recvs);
    return status;
}

void disti_sim_programs_free(struct sim_programs *programs)
{
    for (uint32_t b = 0; programs->buckets && b < programs->bucket_count; b++)
        while (programs->buckets[b]) {
            struct sim_program *next = programs->buckets[b]->next;
            free(programs->buckets[b]);
            programs->buckets[b] = next;
        }
    free(programs->buckets);
    free(programs->at);
}
