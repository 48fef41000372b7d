/* SPDX-License-Identifier: BSD-3-Clause */
/* The simulator: what all ranks' plans take together. */
#include "base/log.h"
#include "simulate/internal.h"

#include <stdlib.h>

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

static uint64_t simulate_steps(const struct sim *sim)
{
    uint64_t steps = 0;
    for (uint32_t i = 0; i < sim->count; i++)
        steps += sim->programs->at[i]->step_count;
    return steps;
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
    status = disti_sim_run(&sim);
    if (status != DIST_OK) {
        disti_fail(status, "no memory to simulate %d ranks", sim.topology->ranks);
        goto out;
    }
    if (sim.steps_done != simulate_steps(&sim)) {
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
