/* SPDX-License-Identifier: BSD-3-Clause */
/* The simulator's parts: programs, machines, the run. */
#ifndef DISTI_SIMULATE_INTERNAL_H
#define DISTI_SIMULATE_INTERNAL_H

#include "plan/plan.h"
#include "topology/topology.h"
#include "tuning/tuning.h"

#define SIM_NONE UINT32_MAX

/*
 * More than this is refused, lest it take minutes: steps that are kept (16 bytes each), and that
 * are simulated.
 */
#define SIM_KEPT_MAX (UINT32_C(1) << 24)
#define SIM_STEPS_MAX (UINT32_C(50) << 20)

/* ---- programs ---- */

/* A step, without what the time does not depend on. */
struct sim_step {
    uint32_t end; /* SEND: which of the program's sends; RECV*: which of its receives */
    uint32_t chunks;
    uint32_t wait_step;
    uint16_t wait_lane;
    uint8_t kind, none; /* none: 0, as programs are compared byte by byte */
};

struct sim_span {
    uint32_t first, count; /* steps */
};

/* Where messages go to or come from: the rank that stands `offset` positions further, cyclic. */
struct sim_end {
    uint32_t offset, channel;
};

/*
 * A plan seen from where its rank stands on the ring. So ranks that do the same with their
 * neighbours have the same program, and it is kept once.
 */
struct sim_program {
    struct sim_program *next; /* in its bucket */
    uint64_t hash;
    uint32_t lane_count, step_count, send_count, recv_count;
    const struct sim_span *lanes;
    const struct sim_step *steps;
    const struct sim_end *sends, *recvs; /* sorted */
};

/* The programs of all ranks, by position: those of the first `period` stand for all. */
struct sim_programs {
    uint32_t ranks, period;
    uint32_t chunks; /* a block */
    struct sim_program **at, **buckets;
    uint32_t bucket_count; /* a power of two */
    uint64_t steps, kept_steps;
    uint32_t shortest; /* steps */
};

/* Writes the plans of the ranks that stand for all. ERR_NO_MEMORY, ERR_UNSUPPORTED. */
dist_status disti_sim_programs_write(const struct disti_algorithm *algorithm,
                                     const struct disti_shape *shape,
                                     struct sim_programs *programs);
void disti_sim_programs_free(struct sim_programs *programs);

/* ---- the machine ---- */

/* What serves first who comes first. Times are in picoseconds: sums are exact, everywhere alike. */
struct sim_line {
    uint64_t free, busy, waited;
    double per_byte;
};

struct sim_cpu {
    uint64_t free;
    uint32_t last; /* the rank that it served last, plus 1; 0: none yet */
};

struct sim_node {
    uint64_t memory_free;
    struct sim_cpu *cpus; /* NULL: a CPU for each rank; may be those of all nodes */
    int cpu_count;
};

struct sim_rank {
    uint32_t node;
    uint32_t first_lane, first_send, first_wire;
    uint64_t free, busy;
};

struct sim_link {
    uint64_t latency, overhead;
    double per_byte;
};

/* ---- the run ---- */

struct sim_lane {
    uint32_t rank;
    uint32_t next;                 /* step */
    uint64_t since;                /* its receive was posted then */
    uint32_t waiters, next_waiter; /* lanes that wait for a step of this one: a list */
    uint32_t awaited;              /* the first of these steps */
};

/* The way of the messages of one pair of ranks on one channel, at the receiver. */
struct sim_wire {
    uint32_t rank;    /* the receiver */
    uint32_t arrived; /* messages that are not received yet */
    uint32_t lane;    /* that waits for a message, or SIM_NONE */
    uint32_t sender;  /* lane whose send ends when the last of these is received, or SIM_NONE */
    uint8_t distance;
};

/* A message on its way. */
struct sim_message {
    uint32_t lane; /* the sender's; when not in use: the next unused one */
    uint32_t wire;
    uint8_t stage;
    bool blocks; /* its send ends only when it is received */
    double bytes;
    uint64_t head, tail; /* when its first and its last byte are where it is now */
    uint64_t sent;       /* the sender's CPU is done with it */
};

/*
 * At `time` the lane's step has ended, or the message is at the next stage of its way. Of two at
 * the same time that is first which was caused first. Each unit counts what it causes for itself:
 * so what happens in one does not hang on where it stands among others that do the same.
 */
struct sim_event {
    uint64_t time;
    uint32_t order;
    uint32_t target; /* SIM_MESSAGE | message, or lane */
};
#define SIM_MESSAGE (UINT32_C(1) << 31)

struct sim {
    const struct sim_programs *programs;
    const struct disti_topology *topology;
    uint32_t count;  /* ranks that are simulated */
    uint32_t period; /* the ranks of a unit: those that could stand for all, else all */
    double chunk_bytes;
    double reduce_per_byte, copy_per_byte, memory_per_byte, network_per_byte;
    uint64_t step, change; /* step_s, switch_s */
    size_t eager;
    int node_cpus, all_cpus; /* all_cpus 0: there is one for each rank, or nodes have their own */
    struct sim_link links[DISTI_DISTANCES];

    struct sim_rank *ranks;
    struct sim_node *nodes;
    struct sim_line *node_lines, *rack_lines; /* of each its line out, its line in */
    uint32_t node_count, rack_count, lane_count, send_count, wire_count;
    struct sim_cpu *cpus;
    struct sim_lane *lanes;
    uint32_t *routes; /* by send: its wire */
    struct sim_wire *wires;

    struct sim_message *messages;
    uint32_t message_count, message_room, unused; /* unused: a list */
    struct sim_event *heap;
    uint32_t events;
    uint32_t *orders; /* by unit: events that it has caused */
    uint32_t unit;    /* of what is going on */

    uint64_t now;
    uint64_t steps_done;
    uint64_t chunks[DISTI_DISTANCES]; /* that were sent */
    struct disti_forecast *forecast;
};

/* A duration in picoseconds: of so many bytes. At most about a week. */
#define SIM_TIME_MAX 6e17
#define SIM_SECOND 1e12
static inline uint64_t sim_bytes(double bytes, double per_byte)
{
    double time = bytes * per_byte;
    return time < SIM_TIME_MAX ? (uint64_t)time : (uint64_t)SIM_TIME_MAX;
}

/*
 * Lays the machine out, and the wires; whole: of all ranks, even where some could stand for all.
 * ERR_NO_MEMORY, ERR_UNSUPPORTED, ERR_INTERNAL.
 */
dist_status disti_sim_machine_open(struct sim *sim, size_t bytes, const struct disti_cost *cost,
                                   bool whole);
void disti_sim_machine_close(struct sim *sim);

/*
 * The rank works for `work`, from `from` on at the earliest, and moves `memory` through its node's
 * memory meanwhile (as a time: what the memory needs for it). Returns the end.
 */
uint64_t disti_sim_work(struct sim *sim, uint32_t rank, uint64_t from, uint64_t work,
                        uint64_t memory, uint64_t *start_p);

/* As disti_simulation_run, but no rank stands for others: for tests. */
dist_status disti_sim_whole_run(const struct disti_simulation *simulation, size_t bytes,
                                const struct disti_cost *cost, struct disti_forecast *forecast_p);

#endif
