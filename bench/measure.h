/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations, patterns of data, drivers of libraries, and what a rank measures. */
#ifndef DISTI_BENCH_MEASURE_H
#define DISTI_BENCH_MEASURE_H

#include <dist/dist.h>

/* What can be measured: the collectives of dist.h, and messages between two ranks. */

/* How much of the size a rank's buffer holds. */
enum operation_part { PART_NONE, PART_BLOCK, PART_WHOLE };

/*
 * X(name, title, in, out, reduces, rooted, in place, layout)
 * title: as OSU's programs print it. in place: never, if asked for, or always. layout: whether the
 * size is one vector, a block for each rank, a message between two ranks, or nothing.
 */
#define OPERATION_MAP(X)                                                                           \
    X(all_reduce, "Allreduce Latency", WHOLE, WHOLE, true, false, ASKED, VECTOR)                   \
    X(all_reduce_coalesced, "Coalesced Allreduce Latency", NONE, WHOLE, true, false, ALWAYS,       \
      VECTOR)                                                                                      \
    X(reduce, "Reduce Latency", WHOLE, WHOLE, true, true, ASKED, VECTOR)                           \
    X(broadcast, "Broadcast Latency", NONE, WHOLE, false, true, ALWAYS, VECTOR)                    \
    X(all_gather, "Allgather Latency", BLOCK, WHOLE, false, false, ASKED, BLOCKS)                  \
    X(all_gather_v, "Allgatherv Latency", BLOCK, WHOLE, false, false, ASKED, BLOCKS)               \
    X(reduce_scatter, "Reduce_scatter_block Latency", WHOLE, BLOCK, true, false, ASKED, BLOCKS)    \
    X(reduce_scatter_v, "Reduce_scatter Latency", WHOLE, BLOCK, true, false, ASKED, BLOCKS)        \
    X(gather, "Gather Latency", BLOCK, WHOLE, false, true, ASKED, BLOCKS)                          \
    X(gather_v, "Gatherv Latency", BLOCK, WHOLE, false, true, ASKED, BLOCKS)                       \
    X(scatter, "Scatter Latency", WHOLE, BLOCK, false, true, ASKED, BLOCKS)                        \
    X(scatter_v, "Scatterv Latency", WHOLE, BLOCK, false, true, ASKED, BLOCKS)                     \
    X(all_to_all, "All-to-All Personalized Exchange Latency", WHOLE, WHOLE, false, false, NEVER,   \
      BLOCKS)                                                                                      \
    X(all_to_all_v, "All-to-Allv Personalized Exchange Latency", WHOLE, WHOLE, false, false,       \
      NEVER, BLOCKS)                                                                               \
    X(barrier, "Barrier Latency", NONE, NONE, false, false, NEVER, NOTHING)                        \
    X(monitored_barrier, "Monitored Barrier Latency", NONE, NONE, false, false, NEVER, NOTHING)    \
    X(latency, "Latency", WHOLE, WHOLE, false, false, NEVER, MESSAGES)                             \
    X(bw, "Bandwidth", WHOLE, WHOLE, false, false, NEVER, MESSAGES)                                \
    X(bibw, "Bi-Directional Bandwidth", WHOLE, WHOLE, false, false, NEVER, MESSAGES)

enum operation_id {
#define OPERATION_ENUM(name, ...) OPERATION_##name,
    OPERATION_MAP(OPERATION_ENUM)
#undef OPERATION_ENUM
        OPERATION_COUNT
};

enum operation_in_place { IN_PLACE_NEVER, IN_PLACE_ASKED, IN_PLACE_ALWAYS };
enum operation_layout { LAYOUT_VECTOR, LAYOUT_BLOCKS, LAYOUT_MESSAGES, LAYOUT_NOTHING };

struct operation {
    enum operation_id id;
    const char *name, *title;
    enum operation_part in, out;
    bool reduces, rooted;
    enum operation_in_place in_place;
    enum operation_layout layout;
};

extern const struct operation operation_table[OPERATION_COUNT];

/* The operation of that name; NULL: there is none. */
const struct operation *operation_find(const char *name);

/* Number of blocks that the size is made of. */
int operation_blocks(const struct operation *operation, int ranks);

/* The dtype or op of that name, OSU's mpi_float and the like included; -1: there is none. */
int operation_dtype(const char *name);
int operation_op(const char *name);

/* An order: what to run, and how often. protocol.h says how it is written. */

struct order {
    const struct operation *operation;
    size_t bytes; /* a whole number of blocks */
    dist_dtype dtype;
    dist_op op;
    int root;
    bool in_place;
    long warmup, samples, batch;
    bool check;
    int window;  /* messages in a call of bw and bibw */
    int buffers; /* sets, each allocated by itself; 0: as protocol.h says, all in one piece */
    bool apart;  /* a barrier before each call, and only calls are timed, as OSU's programs do */
};

#define ORDER_LINE 256
#define ORDER_SAMPLES_MAX 10000000
#define ORDER_WINDOW_MAX 1024
#define ORDER_BUFFERS_MAX 100000

/* "run ...\n" into line, ORDER_LINE bytes. */
void order_write(const struct order *order, char *line);

/* Reads such a line. -1: it is none, or a number is out of range. */
int order_read(const char *line, int ranks, struct order *order_p);

/* Elements of a block, and bytes of it. */
size_t order_count(const struct order *order, int ranks);
size_t order_block(const struct order *order, int ranks);

/* How an order ended, with the words for it. */
enum outcome { OUTCOME_TOOK, OUTCOME_UNSUPPORTED, OUTCOME_WRONG, OUTCOME_FAILED, OUTCOME_COUNT };
extern const char *const outcome_words[OUTCOME_COUNT];

/* What is measured: something that can run an order's calls, seen from one rank. */

struct buffers;

struct driver {
    int rank, ranks;
    bool one_piece;      /* it has memory for one piece only */
    bool block_in_front; /* in place, a reduce-scatter leaves its block where the buffer begins */
    /* Each returns OK, or a status that error() has the text of. */
    dist_status (*barrier)(struct driver *driver);
    dist_status (*call)(struct driver *driver, const struct order *order, const void *in,
                        void *out);
    /*
     * Memory for buffers, called by all ranks with the same number of bytes; NULL, both: ordinary
     * memory. prepare, if it is there, is called before the calls of an order, and forget before
     * the buffers that it was called with are freed; by all ranks.
     */
    dist_status (*alloc)(struct driver *driver, size_t bytes, void **memory_p);
    void (*free)(struct driver *driver, void *memory, size_t bytes);
    dist_status (*prepare)(struct driver *driver, const struct order *order,
                           const struct buffers *buffers);
    void (*forget)(struct driver *driver);
    const char *(*error)(struct driver *driver);
    /*
     * Of memory that the host cannot touch; else NULL, all three. put and get copy to it and from
     * it; they and synchronize wait until the calls have ended.
     */
    dist_status (*put)(struct driver *driver, void *to, const void *from, size_t bytes);
    dist_status (*get)(struct driver *driver, void *to, const void *from, size_t bytes);
    dist_status (*synchronize)(struct driver *driver);
};

/*
 * libdist itself. memory: "malloc", "registered", "dist" or "cuda". The group stays the caller's.
 * On success *driver_p is to be given to libdist_free, before the group is destroyed. NULL is
 * accepted there.
 */
dist_status libdist_new(dist_group *group, const char *memory, struct driver **driver_p);
void libdist_free(struct driver *driver);

/* The words after a backend's slash and of --mem. */
bool libdist_has_memory(const char *name);

/*
 * The bound of this machine: a bare loop over memory that all ranks have mapped. limit_map makes
 * that memory, before the ranks are started; each rank then calls limit_new.
 */
struct limit_map;
struct limit_map *limit_map_new(int ranks, size_t largest); /* NULL: errno says why */
void limit_map_free(struct limit_map *map);
dist_status limit_new(struct limit_map *map, int rank, struct driver **driver_p);
void limit_free(struct driver *driver);

/* The buffers of a run: sets of in and out, used in turn. */

struct buffers {
    void **pieces; /* NULL: none */
    int piece_count;
    size_t bytes; /* of a piece */
    size_t stride, in_offset, out_offset;
    size_t in_bytes, out_bytes;
    int sets; /* all in the one piece, or each in its own */
};

void buffers_free(struct buffers *buffers, struct driver *driver);

static inline char *buffers_set(const struct buffers *buffers, int set)
{
    return buffers->piece_count > 1 ? (char *)buffers->pieces[set]
                                    : (char *)buffers->pieces[0] + (size_t)set * buffers->stride;
}

static inline void *buffers_in(const struct buffers *buffers, int set)
{
    return buffers_set(buffers, set) + buffers->in_offset;
}

static inline void *buffers_out(const struct buffers *buffers, int set)
{
    return buffers_set(buffers, set) + buffers->out_offset;
}

/* Are in and out of an order the same memory? */
bool buffers_in_place(const struct order *order);

/* How many sets an order has. */
int buffers_sets(const struct order *order, int ranks);

/* What all sets of an order take on one rank at most, in bytes. SIZE_MAX: too much to count. */
size_t buffers_need(const struct order *order, int ranks);

/* An element of any dtype from a double, and back. */

/* value must be a whole number; integers wrap. A float16 beyond its range becomes infinite. */
void number_write(dist_dtype dtype, double value, void *element);
double number_read(dist_dtype dtype, const void *element);

/*
 * Data whose result is known: element i of a rank is a function of (i + 17 rank + seed) mod 61. So
 * results repeat every 61 elements: the first 61 are compared with what plain arithmetic in double
 * gives, and the rest with what stands 61 elements before. Values are small whole numbers, chosen
 * so that no type rounds them, and at every place some ranks count and some do not.
 */

struct pattern {
    dist_dtype dtype;
    dist_op op;
    bool reduces;
    int ranks;
    unsigned seed;
};

/* Writes the elements first, first + 1, ... (count of them) of that rank. */
void pattern_fill(const struct pattern *pattern, int rank, size_t first, void *data, size_t count);

/* Are these the elements first, ... of that rank? Else *bad_p is the first that is not. */
bool pattern_is(const struct pattern *pattern, int rank, size_t first, const void *data,
                size_t count, size_t *bad_p);

/* Are these the elements first, ... of the reduction over all ranks? */
bool pattern_is_reduced(const struct pattern *pattern, size_t first, const void *data, size_t count,
                        size_t *bad_p);

/* The factor of premul_sum that is expected. */
#define PATTERN_FACTOR 2.0

/* The worker's side of the protocol of bench/protocol.h, with any driver. */

/*
 * Connects to dist_bench and runs its orders on the driver until it says quit or goes away; blocks.
 * name: what dist_bench calls the library; release: the library and its version. -1: there is no
 * connection, which has been reported on stderr.
 */
int serve(struct driver *driver, const char *name, const char *release);

/* Runs an order on one rank, and takes the time. */

#define MEASURE_REASON 512

/*
 * All ranks call it with the same order. times: order->samples of them, in ns a call. A result that
 * is wrong does not end the run, so the ranks stay in step. reason, MEASURE_REASON bytes, is set
 * unless it TOOK. After FAILED the driver is of no more use.
 */
enum outcome measure_run(struct driver *driver, struct buffers *buffers, const struct order *order,
                         double *times, char *reason);

/* The clock, in ns. */
double measure_now(void);

#endif
