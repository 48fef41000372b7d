/* SPDX-License-Identifier: BSD-3-Clause */
/* What things cost on a machine and its network: what predictions are made from. */
#ifndef DISTI_TUNING_COST_H
#define DISTI_TUNING_COST_H

#include "plan/plan.h"

/* How far two ranks are from each other. */
enum disti_distance {
    DISTI_SAME_NUMA,
    DISTI_SAME_NODE,
    DISTI_OTHER_NODE,
    DISTI_OTHER_RACK, /* only where the topology has racks */
    DISTI_DISTANCES
};

/*
 * A message of b bytes arrives latency_s + b / bytes_per_second after its send began (if nothing is
 * in its way) and keeps the sender, and then the receiver, busy for overhead_s each; between nodes
 * for b / network_bytes_per_second more, while it goes over the line.
 *
 * Inside a node it is the receiver that moves the bytes: once it has heard of the message, after
 * latency_s, it is busy for b / bytes_per_second more. Over DISTI_OTHER_NODE all ranks of a node
 * share one line in each direction of bytes_per_second. Over DISTI_OTHER_RACK all nodes of a rack
 * share one more, of that distance's bytes_per_second: from line to line to line to line.
 *
 * A rate of 0 means: no limit. So do latencies and overheads of 0.
 */
struct disti_link_cost {
    double latency_s, overhead_s;
    double bytes_per_second;
};

struct disti_cost {
    struct disti_link_cost links[DISTI_DISTANCES];
    size_t eager_bytes;              /* inside a node a longer send ends only when it is received */
    double copy_bytes_per_second;    /* one rank copies, by bytes copied */
    double reduce_bytes_per_second;  /* one rank reduces two vectors into one, by bytes of one */
    double node_bytes_per_second;    /* all ranks of a node together: the memory's limit */
    double network_bytes_per_second; /* one rank puts bytes into the network, or takes them out */
    double step_s;                   /* what the engine needs for a step */
    double switch_s;                 /* a CPU goes from one rank to another */
    int node_cpus;                   /* shared by the ranks of a node; 0: a CPU for each */
    int all_cpus; /* shared by all ranks, as the nodes are containers of one kernel; 0: they are not
                   */
};

/* Where nothing has been measured: usual servers, Ethernet of 10 Gbit/s, racks of 40 Gbit/s. */
extern const struct disti_cost disti_cost_usual;

/*
 * The rates of copying and reducing are those of long vectors. Up to so many bytes a core's own
 * cache holds them, and it goes so many times as fast.
 */
#define DISTI_CACHED_BYTES 131072.0
#define DISTI_CACHED_TIMES 3.0

/* Bytes of a piece: some packets of TCP, which the receiver takes while others follow. */
#define DISTI_NETWORK_PIECE 16384.0

/* What went over the links of one distance. Inside a node there are no lines. */
struct disti_traffic {
    uint64_t messages; /* between ranks that far from each other */
    double bytes;
    double waited_s; /* all messages together, for the lines of nodes or racks */
    double busiest;  /* the share of the time that the busiest of these lines was in use */
};

struct disti_forecast {
    double seconds; /* from the start to the last rank's end */
    struct disti_traffic links[DISTI_DISTANCES];
    double busiest_rank; /* the share of the time that the busiest rank was at work */
    uint64_t steps;      /* of all ranks */
    int simulated;       /* ranks; the others do what one of these does */
};

/*
 * The plans of all ranks of shape->topology, made ready to be simulated (shape->rank is not looked
 * at). The topology must stay; the caller closes it, NULL is accepted. ERR_NO_MEMORY;
 * ERR_UNSUPPORTED if the algorithm cannot have so many ranks, or their plans are too long to be
 * simulated; the error says what to ask for instead.
 */
struct disti_simulation;
dist_status disti_simulation_open(const struct disti_algorithm *algorithm,
                                  const struct disti_shape *shape,
                                  struct disti_simulation **simulation_p);
void disti_simulation_close(struct disti_simulation *simulation);

/*
 * What happens when all ranks run their plans at the same moment, on blocks of `bytes` bytes (what
 * a block is: plan.h). Pure: the same arguments, the same result on every machine. Any number of
 * times. ERR_NO_MEMORY; ERR_UNSUPPORTED as above.
 *
 * The model. The steps of a lane follow each other, and a step that waits begins when what it waits
 * for has ended. Each rank has one thread: what its lanes have to do it does in the order in which
 * it came up. Lines, a node's memory and its CPUs serve first who comes first, a message at a time.
 *
 *     sender's CPU  [step|overhead|network]
 *     its line      ...........[bytes / rate]                 SEND ends
 *     peer's line                   ^latency [bytes / rate]
 *     peer's CPU                             .....[network|reduce][step|overhead]   RECV ends
 *
 * What a CPU puts into the network goes on its way in pieces: a message of one piece is put in,
 * carried and taken out one after the other, of a longer one the pieces are at the same time. What
 * is reduced from a line is reduced while it comes in. Chunks are taken to be all of the mean size,
 * messages that would be skipped as empty are sent, and IN and OUT are apart. A BARRIER moves
 * nothing, whatever the bytes.
 */
dist_status disti_simulation_run(const struct disti_simulation *simulation, size_t bytes,
                                 const struct disti_cost *cost, struct disti_forecast *forecast_p);

/* All three. */
dist_status disti_forecast(const struct disti_algorithm *algorithm, const struct disti_shape *shape,
                           size_t bytes, const struct disti_cost *cost,
                           struct disti_forecast *forecast_p);

/* The same, its seconds alone. */
dist_status disti_simulate(const struct disti_algorithm *algorithm, const struct disti_shape *shape,
                           size_t bytes, const struct disti_cost *cost, double *seconds_p);

#endif
