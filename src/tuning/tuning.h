/* SPDX-License-Identifier: BSD-3-Clause */
/* What things cost, predictions, and the files in which costs are kept. */
#ifndef DISTI_TUNING_TUNING_H
#define DISTI_TUNING_TUNING_H

#include "plan/plan.h"

/* What things cost on a machine and its network: what predictions are made from. */

/* How far two ranks are from each other. */
enum disti_distance {
    DISTI_SAME_NUMA,
    DISTI_SAME_NODE,
    DISTI_OTHER_NODE,
    DISTI_OTHER_RACK, /* only where the topology has racks */
    DISTI_DISTANCES
};

enum disti_distance disti_distance(const struct disti_topology *topology, int one, int other);

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

#define DISTI_SEGMENTS_MOST 1024

/* What a choice of algorithms is made from: costs, and choices that somebody fixed. As text too. */

#define DISTI_FIXED_MAX 32
#define DISTI_TUNING_TEXT                                                                          \
    8192 /* room for any that disti_tuning_print writes without fixed ones                         \
          */

/* A fixed choice, for blocks of at most `bytes` bytes and at most `ranks` ranks. */
struct disti_fixed {
    uint64_t bytes;
    int32_t collective;
    int32_t ranks;
    int32_t algorithm; /* its row in disti_algorithms */
    uint32_t segments; /* 0: as many as the rules say */
};

/*
 * Rank 0's, handed to all ranks as it lies in memory. It has no padding that is not zero if it was
 * made by disti_tuning_usual or disti_tuning_parse.
 */
struct disti_tuning {
    struct disti_cost cost;
    uint32_t predict; /* 0: costs are not looked at, the rules choose */
    uint32_t fixed_count;
    struct disti_fixed fixed[DISTI_FIXED_MAX]; /* the first that fits decides */
    char source[64];                           /* "measured", "the file NAME", ...; for people */
};

/* disti_cost_usual and nothing fixed. */
void disti_tuning_usual(struct disti_tuning *tuning_p);

/* Is every number within what is possible? For what another process sent. */
bool disti_tuning_sane(const struct disti_tuning *tuning);

/*
 * Every cost has the value that comes out when it is written and read again, so that it makes no
 * difference whether a tuning was just measured or found.
 */
void disti_tuning_round(struct disti_tuning *tuning);

/*
 * The text of a tuning file (dist-tuning(7)), with `key`, the line that says where it was measured.
 * Returns its length as snprintf does.
 */
size_t disti_tuning_print(const struct disti_tuning *tuning, const char *key, char *text,
                          size_t size);

/*
 * Reads such a text; costs that it does not give are the usual ones. key NULL: any will do;
 * otherwise it must be the file's. Strict: a word that is not known, or a number out of range, is
 * ERR_INVALID_ARGUMENT. Then why[why_size] says what is wrong, with `name`, the file's, and the
 * line; nothing is reported.
 */
dist_status disti_tuning_parse(const char *text, const char *name, const char *key,
                               struct disti_tuning *tuning_p, char *why, size_t why_size);

/* What is fixed for such a call; NULL: nothing. */
const struct disti_fixed *disti_tuning_fixed(const struct disti_tuning *tuning,
                                             dist_collective collective, size_t bytes, int ranks);

#endif
