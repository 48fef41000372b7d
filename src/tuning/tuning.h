/* SPDX-License-Identifier: BSD-3-Clause */
/* The costs of a machine, predictions from them, and the files that store them. */
#ifndef DISTI_TUNING_TUNING_H
#define DISTI_TUNING_TUNING_H

#include "plan/plan.h"

/* ---- costs of a machine and its network ---- */

/* The distance between two ranks. */
enum disti_distance {
    DISTI_SAME_NUMA,
    DISTI_SAME_NODE,
    DISTI_OTHER_NODE,
    DISTI_OTHER_RACK, /* only if the topology has racks */
    DISTI_DISTANCES
};

enum disti_distance disti_distance(const struct disti_topology *topology, int one, int other);

/*
 * The cost of messages at one distance. A message of b bytes arrives latency_s + b /
 * bytes_per_second after its send began, if nothing delays it. It occupies the sender and then the
 * receiver for overhead_s each, and between nodes for b / network_bytes_per_second more, while it
 * is transmitted.
 *
 * Inside a node the receiver copies the bytes: it notices the message after latency_s, and is then
 * busy for b / bytes_per_second more. At DISTI_OTHER_NODE, all ranks of a node share one line in
 * each direction, of bytes_per_second. At DISTI_OTHER_RACK, all nodes of a rack share one more line
 * in each direction, of that distance's bytes_per_second; a message then passes four lines.
 *
 * A rate of 0 means unlimited. Latencies and overheads may be 0.
 */
struct disti_link_cost {
    double latency_s, overhead_s;
    double bytes_per_second;
};

struct disti_cost {
    struct disti_link_cost links[DISTI_DISTANCES];
    size_t eager_bytes;             /* inside a node, a longer send ends only when it is received */
    double copy_bytes_per_second;   /* of one rank, in bytes copied */
    double reduce_bytes_per_second; /* of one rank that reduces two vectors into one, in bytes of
                                       one vector */
    double node_bytes_per_second;   /* of all ranks of a node together: the limit of the memory */
    double network_bytes_per_second; /* CPU rate at which one rank sends to or receives from the
                                        network */
    double step_s;                   /* cost of a step in the engine */
    double switch_s;                 /* context switch of a CPU from one rank to another */
    int node_cpus;                   /* CPUs shared by the ranks of a node; 0: one per rank */
    int all_cpus; /* CPUs shared by all ranks, if the nodes are containers of one kernel; otherwise
                     0 */
};

/*
 * The costs used if none have been measured: those of typical servers with 10 Gbit/s Ethernet and
 * 40 Gbit/s between racks.
 */
extern const struct disti_cost disti_cost_usual;

/*
 * The rates of copying and reducing are those of long vectors. Up to DISTI_CACHED_BYTES, the data
 * are in a core's own cache, and the rates are DISTI_CACHED_TIMES as high.
 */
#define DISTI_CACHED_BYTES 131072.0
#define DISTI_CACHED_TIMES 3.0

/*
 * Size of the pieces in which a CPU sends data to the network: a few TCP packets. The receiver
 * processes one piece while the next one arrives.
 */
#define DISTI_NETWORK_PIECE 16384.0

/* The traffic over the links of one distance. Inside a node there are no lines. */
struct disti_traffic {
    uint64_t messages; /* between ranks at this distance */
    double bytes;
    double waited_s; /* total time that messages waited for the lines of nodes or racks */
    double busiest;  /* the fraction of the time in which the busiest of these lines was in use */
};

struct disti_forecast {
    double seconds; /* from the start until the last rank has ended */
    struct disti_traffic links[DISTI_DISTANCES];
    double busiest_rank; /* the fraction of time that the busiest rank was working */
    uint64_t steps;      /* of all ranks */
    int simulated; /* number of simulated ranks; each other rank does the same as one of these */
};

/*
 * The plans of all ranks of shape->topology, prepared for simulation. shape->rank is ignored. The
 * topology must outlive the simulation. The caller closes it; closing NULL is allowed. Errors:
 * ERR_NO_MEMORY; ERR_UNSUPPORTED if the algorithm does not support so many ranks or their plans are
 * too long to simulate (the error message has the remedy).
 */
struct disti_simulation;
dist_status disti_simulation_open(const struct disti_algorithm *algorithm,
                                  const struct disti_shape *shape,
                                  struct disti_simulation **simulation_p);
void disti_simulation_close(struct disti_simulation *simulation);

/*
 * Predicts the run in which all ranks start their plans at the same moment, with blocks of `bytes`
 * bytes (plan.h). May be called any number of times. The same arguments give the same result on
 * every machine. Errors: ERR_NO_MEMORY; ERR_UNSUPPORTED if the plans are too long to simulate.
 *
 * The model: Steps of a lane run one after the other, and a step that waits begins when the awaited
 * step has ended. Each rank has one thread, which processes its lanes' steps in the order in which
 * they became ready. Lines, the memory of a node, and its CPUs serve one message at a time, in
 * order of arrival.
 *
 *     sender's CPU  [step|overhead|network]
 *     its line      ...........[bytes / rate]                 SEND ends
 *     peer's line                   ^latency [bytes / rate]
 *     peer's CPU                             .....[network|reduce][step|overhead]   RECV ends
 *
 * A CPU sends data to the network in pieces. For a message of one piece, sending, transmission and
 * reception are sequential; for a longer message they overlap. Data from another node are reduced
 * while they arrive. All chunks are assumed to have the mean size, messages that would be skipped
 * as empty are counted, and IN and OUT are separate memory. A BARRIER moves no data, whatever
 * `bytes` is.
 */
dist_status disti_simulation_run(const struct disti_simulation *simulation, size_t bytes,
                                 const struct disti_cost *cost, struct disti_forecast *forecast_p);

/* Opens a simulation, runs it and closes it. */
dist_status disti_forecast(const struct disti_algorithm *algorithm, const struct disti_shape *shape,
                           size_t bytes, const struct disti_cost *cost,
                           struct disti_forecast *forecast_p);

/* Like disti_forecast(), but returns only the seconds. */
dist_status disti_simulate(const struct disti_algorithm *algorithm, const struct disti_shape *shape,
                           size_t bytes, const struct disti_cost *cost, double *seconds_p);

#define DISTI_SEGMENTS_MOST 1024

/* ---- tuning: costs and fixed choices, in memory and as text ---- */

#define DISTI_FIXED_MAX 32
#define DISTI_TUNING_TEXT 8192 /* enough for disti_tuning_print() without fixed choices */

/* A fixed choice, for blocks of at most `bytes` bytes and at most `ranks` ranks. */
struct disti_fixed {
    uint64_t bytes;
    int32_t collective;
    int32_t ranks;
    int32_t algorithm; /* its row in disti_algorithms */
    uint32_t segments; /* 0: as many as the rules select */
};

/* The tuning of rank 0, which is sent to all ranks as bytes. disti_tuning_usual() and
 * disti_tuning_parse() zero its padding. */
struct disti_tuning {
    struct disti_cost cost;
    uint32_t predict; /* 0: costs are ignored, the rules decide */
    uint32_t fixed_count;
    struct disti_fixed fixed[DISTI_FIXED_MAX]; /* the first match decides */
    char source[64];                           /* "measured", "the file NAME", ...; for messages */
};

/* Sets disti_cost_usual and no fixed choices. */
void disti_tuning_usual(struct disti_tuning *tuning_p);

/* True if every number is in its valid range. For data from another process. */
bool disti_tuning_sane(const struct disti_tuning *tuning);

/* Rounds every cost to the value that results from writing and reading it, so that a tuning just
 * measured and one read from a file give the same choices. */
void disti_tuning_round(struct disti_tuning *tuning);

/* Writes the text of a tuning file (dist-tuning(7)). `key` identifies the machine on which it was
 * measured. Returns the length like snprintf(). */
size_t disti_tuning_print(const struct disti_tuning *tuning, const char *key, char *text,
                          size_t size);

/*
 * Parses the text of a tuning file. Missing costs get their usual values. If `key` is not NULL, the
 * file must have the same key. Unknown words and numbers out of range return ERR_INVALID_ARGUMENT,
 * with a message in why[why_size] that contains `name` and the line number. It does not log or set
 * the last error.
 */
dist_status disti_tuning_parse(const char *text, const char *name, const char *key,
                               struct disti_tuning *tuning_p, char *why, size_t why_size);

/* Returns the fixed choice that applies to a call, or NULL. */
const struct disti_fixed *disti_tuning_fixed(const struct disti_tuning *tuning,
                                             dist_collective collective, size_t bytes, int ranks);

#endif
