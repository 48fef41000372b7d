/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations, test data, drivers of libraries, and the measurement on one rank. */
#ifndef DISTI_BENCH_MEASURE_H
#define DISTI_BENCH_MEASURE_H

#include <dist/dist.h>

/*
 * The operations that can be measured: the collectives of dist.h, and messages between two ranks.
 */

/* The size of a rank's buffer: 0, one block (order_block), or order->bytes. */
enum operation_part { PART_NONE, PART_BLOCK, PART_WHOLE };

/*
 * X(name, title, in, out, reduces, rooted, in place, layout)
 *
 * title: as in the output of OSU's programs. in place: never, optional, or always. layout: the size
 * is one vector, one block per rank, a message between two ranks, or 0.
 */
#define OPERATION_MAP(X)                                                                           \
    X(all_reduce, "Allreduce Latency", WHOLE, WHOLE, true, false, OPTIONAL, VECTOR)                \
    X(all_reduce_coalesced, "Coalesced Allreduce Latency", NONE, WHOLE, true, false, ALWAYS,       \
      VECTOR)                                                                                      \
    X(reduce, "Reduce Latency", WHOLE, WHOLE, true, true, OPTIONAL, VECTOR)                        \
    X(broadcast, "Broadcast Latency", NONE, WHOLE, false, true, ALWAYS, VECTOR)                    \
    X(all_gather, "Allgather Latency", BLOCK, WHOLE, false, false, OPTIONAL, BLOCKS)               \
    X(all_gather_v, "Allgatherv Latency", BLOCK, WHOLE, false, false, OPTIONAL, BLOCKS)            \
    X(reduce_scatter, "Reduce_scatter_block Latency", WHOLE, BLOCK, true, false, OPTIONAL, BLOCKS) \
    X(reduce_scatter_v, "Reduce_scatter Latency", WHOLE, BLOCK, true, false, OPTIONAL, BLOCKS)     \
    X(gather, "Gather Latency", BLOCK, WHOLE, false, true, OPTIONAL, BLOCKS)                       \
    X(gather_v, "Gatherv Latency", BLOCK, WHOLE, false, true, OPTIONAL, BLOCKS)                    \
    X(scatter, "Scatter Latency", WHOLE, BLOCK, false, true, OPTIONAL, BLOCKS)                     \
    X(scatter_v, "Scatterv Latency", WHOLE, BLOCK, false, true, OPTIONAL, BLOCKS)                  \
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

enum operation_in_place { IN_PLACE_NEVER, IN_PLACE_OPTIONAL, IN_PLACE_ALWAYS };
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

/* Returns the operation of that name, or NULL. */
const struct operation *operation_find(const char *name);

/* Returns the number of blocks that the size consists of. */
int operation_blocks(const struct operation *operation, int ranks);

/* Return the dtype or op of that name, including OSU's names such as mpi_float; -1: unknown. */
int operation_dtype(const char *name);
int operation_op(const char *name);

/* An order: which calls a rank runs, and how often. See protocol.h for its text form. */

struct order {
    const struct operation *operation;
    size_t bytes; /* a multiple of the number of blocks */
    dist_dtype dtype;
    dist_op op;
    int root;
    bool in_place;
    long warmup, samples, batch;
    bool check;
    int window;  /* messages per call of bw and bibw */
    int buffers; /* number of sets, each allocated separately; 0: as many as protocol.h specifies,
                    in one piece */
    bool apart;  /* a barrier, which is not timed, precedes each call, as in OSU's programs */
};

#define ORDER_LINE 256
#define ORDER_SAMPLES_MAX 10000000
#define ORDER_WINDOW_MAX 1024
#define ORDER_BUFFERS_MAX 100000

/* Writes "run ...\n" to line (ORDER_LINE bytes). */
void order_write(const struct order *order, char *line);

/* Parses such a line. -1: it is not an order, or a number is out of range. */
int order_read(const char *line, int ranks, struct order *order_p);

/* Return the number of elements of a block, and its size in bytes. */
size_t order_count(const struct order *order, int ranks);
size_t order_block(const struct order *order, int ranks);

/* The result of an order, and the words for it in the protocol. */
enum outcome { OUTCOME_TOOK, OUTCOME_UNSUPPORTED, OUTCOME_WRONG, OUTCOME_FAILED, OUTCOME_COUNT };
extern const char *const outcome_words[OUTCOME_COUNT];

/* A driver runs the calls of an order on one rank. */

struct buffers;

struct driver {
    int rank, ranks;
    bool one_piece;      /* alloc can be called only once: all sets must be in one piece */
    bool block_in_front; /* in place, reduce-scatter stores its block at the beginning of the buffer
                          */
    /* The functions return DIST_OK, or a status whose message error() returns. */
    dist_status (*barrier)(struct driver *driver);
    dist_status (*call)(struct driver *driver, const struct order *order, const void *in,
                        void *out);
    /*
     * Allocate and free buffers. All ranks call them with the same number of bytes; if both are
     * NULL, ordinary memory is used. All ranks call prepare (may be NULL) before the calls of an
     * order, and forget before freeing the buffers that were passed to prepare.
     */
    dist_status (*alloc)(struct driver *driver, size_t bytes, void **memory_p);
    void (*free)(struct driver *driver, void *memory, size_t bytes);
    dist_status (*prepare)(struct driver *driver, const struct order *order,
                           const struct buffers *buffers);
    void (*forget)(struct driver *driver);
    const char *(*error)(struct driver *driver);
    /*
     * For memory that the host cannot access; otherwise all three are NULL. put and get copy to and
     * from it. All three wait until the previous calls have completed.
     */
    dist_status (*put)(struct driver *driver, void *to, const void *from, size_t bytes);
    dist_status (*get)(struct driver *driver, void *to, const void *from, size_t bytes);
    dist_status (*synchronize)(struct driver *driver);
};

/*
 * Creates the driver of libdist. memory: "malloc", "registered", "dist" or "cuda". The caller keeps
 * the group. On success the caller releases *driver_p with libdist_free before it destroys the
 * group. libdist_free accepts NULL.
 */
dist_status libdist_new(dist_group *group, const char *memory, struct driver **driver_p);
void libdist_free(struct driver *driver);

/* True if `name` is a memory kind, as after the slash of a backend or in --mem. */
bool libdist_has_memory(const char *name);

/*
 * The driver "limit", which measures the bound of this machine: it runs the calls with bare loops
 * over memory that all ranks have mapped, without a library. limit_map_new creates this memory
 * before the ranks are started; each rank then calls limit_new.
 */
struct limit_map;
struct limit_map *limit_map_new(int ranks, size_t largest); /* NULL: see errno */
void limit_map_free(struct limit_map *map);
dist_status limit_new(struct limit_map *map, int rank, struct driver **driver_p);
void limit_free(struct driver *driver);

/* The buffers of a run: sets of in and out that calls use in rotation. */

struct buffers {
    void **pieces; /* NULL: none */
    int piece_count;
    size_t bytes; /* bytes per piece */
    size_t stride, in_offset, out_offset;
    size_t in_bytes, out_bytes;
    int sets; /* total number of sets: all in one piece, or one per piece */
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

/* True if in and out of an order are the same memory. */
bool buffers_in_place(const struct order *order);

/* Returns the number of sets of an order. */
int buffers_sets(const struct order *order, int ranks);

/*
 * Returns the total size of all sets of an order on one rank, in bytes; SIZE_MAX: the total could
 * exceed a size_t.
 */
size_t buffers_need(const struct order *order, int ranks);

/* Conversion between double and an element of any dtype. */

/*
 * Write and read an element. The value to write must be an integer; integer types wrap, and a
 * float16 out of range becomes infinite.
 */
void number_write(dist_dtype dtype, double value, void *element);
double number_read(dist_dtype dtype, const void *element);

/*
 * Test data with a known result: element i of a rank is a function of (i + 17 rank + seed) mod 61,
 * so results repeat every 61 elements. The first 61 elements are compared with a result computed in
 * double, and each following element with the one 61 positions before it. Values are small integers
 * that no type rounds. At every position some ranks contribute a value that affects the result, and
 * the other ranks do not.
 */

struct pattern {
    dist_dtype dtype;
    dist_op op;
    bool reduces;
    int ranks;
    unsigned seed;
};

/* Writes elements first ... first + count - 1 of that rank. */
void pattern_fill(const struct pattern *pattern, int rank, size_t first, void *data, size_t count);

/*
 * True if data are elements first, first + 1, ... of that rank. Otherwise *bad_p is the index of
 * the first wrong element.
 */
bool pattern_is(const struct pattern *pattern, int rank, size_t first, const void *data,
                size_t count, size_t *bad_p);

/*
 * True if data are elements first, first + 1, ... of the reduction over all ranks. *bad_p as above.
 */
bool pattern_is_reduced(const struct pattern *pattern, size_t first, const void *data, size_t count,
                        size_t *bad_p);

/* The expected factor of premul_sum. */
#define PATTERN_FACTOR 2.0

/* The worker's side of the protocol in bench/protocol.h, for any driver. */

/*
 * Connects to dist_bench and runs its orders on the driver until it sends quit or closes the
 * connection; blocks. name: the library in dist_bench; release: the library and its version. -1:
 * cannot connect; the error has been printed to stderr.
 */
int serve(struct driver *driver, const char *name, const char *release);

/* Runs and times an order on one rank. */

#define MEASURE_REASON 512

/*
 * All ranks must call it with the same order. Writes order->samples times to `times`, in ns per
 * call. After a wrong result the run continues, so that the ranks stay synchronised. Sets reason
 * (MEASURE_REASON bytes) unless the result is OUTCOME_TOOK. After OUTCOME_FAILED the driver cannot
 * be used any more.
 */
enum outcome measure_run(struct driver *driver, struct buffers *buffers, const struct order *order,
                         double *times, char *reason);

/* Returns the monotonic time in ns. */
double measure_now(void);

#endif
