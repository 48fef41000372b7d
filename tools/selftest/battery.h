/* SPDX-License-Identifier: BSD-3-Clause */
/* Internals of the battery: test data, expected results, and cases. */
#ifndef TOOLS_SELFTEST_BATTERY_H
#define TOOLS_SELFTEST_BATTERY_H

#include "selftest.h"

#include <dist/backend.h>
#include <dist/dist.h>

/*
 * Generates an endless row of pseudorandom numbers for each rank. Floating-point numbers are in a
 * range where the op does not overflow; integers may have any value. For operations that the
 * battery creates, op is DIST_PREMUL_SUM or DIST_USER.
 */
struct data {
    uint64_t seed;
    dist_dtype dtype;
    dist_op op;
};

/* True if the op is defined for the dtype. */
bool data_fits(dist_dtype dtype, dist_op op);

/* Writes `count` elements of the rank's row, starting at element `first`. */
void data_fill(const struct data *d, int rank, size_t first, size_t count, void *memory);

/*
 * The factor of the battery's premul_sum for a rank, and its user operation: a bytewise sum. It
 * differs from all built-in operations, and detects contributions that are missing or doubled.
 */
double data_factor(int rank);
void data_user(void *arg, void *dst, const void *a, const void *b, size_t count, dist_dtype dtype);

/* ---- expected results ---- */

/*
 * True if the element at `found` is the reduction of the i-th elements of all rows. The expected
 * value is computed rank by rank in float64, or in 64-bit integers for integer types; floats may
 * differ by the rounding of `ranks` steps. Returns both values for messages.
 */
bool data_reduced(const struct data *d, int ranks, size_t i, const void *found, double *expected_p,
                  double *found_p);

/* ---- the run of one rank ---- */

/* The way a case is run. battery_modes has the names, followed by "all". */
enum battery_mode {
    MODE_BLOCKING, /* blocking call */
    MODE_ASYNC,    /* _async call, followed by a wait */
    MODE_FLOOD,    /* many _async calls, waited for later in a different order */
    MODE_GROUP,    /* many blocking calls between dist_group_start and dist_group_end */
    MODE_COUNT
};
extern const char *const battery_modes[];

/* The memory of a case's buffers: malloc, dist_alloc, a GPU, or a mixture of these. */
enum battery_memory { MEMORY_ORDINARY, MEMORY_SHARED, MEMORY_DEVICE, MEMORY_ANY, MEMORY_COUNT };

/* Maximum number of cases in flight: more than a backend is likely to run concurrently. */
#define BATTERY_FLIGHT 24
/* Maximum number of results whose hashes wait to be compared between the ranks. */
#define BATTERY_HASHES 64

/* One rank's run. */
struct battery {
    dist_group *group;
    int rank, ranks;
    const char *backend;
    const char *only; /* name of an operation; NULL: all */
    enum battery_mode mode;
    enum battery_memory memory;
    bool brief;                 /* fewer counts */
    bool apart;                 /* no calls in place */
    bool complete;              /* every sensible combination must be supported */
    uint32_t lacks;             /* bits of DIST_LACKS_..., declared by the backend */
    uint64_t seed;              /* seed of the last case */
    dist_op ops[DIST_OP_COUNT]; /* the op to pass for each: the built-in op, or an op that the
                                   battery created */
    long checks, faults, cases, refusals;
    struct selftest_count *count; /* copy of the counters, for the parent process */
    int stuck_s;

    struct test_case *flight[BATTERY_FLIGHT];
    int in_flight;
    size_t flight_bytes;

    uint64_t hashes[BATTERY_HASHES];
    char hashed[BATTERY_HASHES][96];
    int hash_count;
};

/* Counts a fault. Prints the rank's first few faults as "rank R: FAULT ...". */
void battery_fault(struct battery *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Counts a check. Returns true if status is DIST_OK; otherwise adds a fault and returns false. */
bool battery_ok(struct battery *b, dist_status status, const char *what);
/* Returns zeroed memory. Exits the program if out of memory. */
void *battery_alloc(size_t count, size_t size);

/* ---- cases: a call, its memory and the expected result ---- */

/*
 * Layout of the blocks of an irregular call: equal lengths; different lengths, some of them 0;
 * different lengths, shuffled and with gaps; or input and output interleaved in one buffer, with
 * the blocks of each in the gaps of the other.
 */
enum layout { LAYOUT_EVEN, LAYOUT_UNEVEN, LAYOUT_GAPS, LAYOUT_WOVEN, LAYOUT_COUNT };

/*
 * Memory between guard bytes, and a copy of its state before the call. The host reads and writes
 * `image`: the memory itself, or a host copy of device memory.
 */
struct buffer {
    unsigned char *memory, *data, *before, *image;
    size_t bytes;
    enum battery_memory from; /* ORDINARY, SHARED or DEVICE */
};

/*
 * An expected part of a result: from element `at` on, `count` elements of the row of `source_rank`,
 * starting at `first`. If source_rank is REDUCED, the elements are of the reduction of all rows.
 * Memory outside the blocks must not change.
 */
#define REDUCED (-1)
struct block {
    size_t at, count, first;
    int source_rank;
};

struct test_case {
    struct battery *b;
    const struct operation *operation;
    struct data data;
    size_t count;
    int root;
    enum layout layout;
    bool in_place;
    int tag;

    /* Set by the shape function: buffers, arguments and expected blocks. In place and with
     * LAYOUT_WOVEN, `out` has input and output, and `in` is unused. */
    struct buffer in, out;
    const void *input;
    void *output;
    size_t *in_counts, *in_offsets, *out_counts, *out_offsets;
    int works_needed; /* number of requests; the default is 1 */
    struct block *blocks;
    int block_count;

    dist_work **works;
    int *sources; /* source rank of each receive; -2 until it is set */
};

enum {
    ROOTED = 1,   /* has a root */
    IN_PLACE = 2, /* can run in place */
    LAYOUTS = 4,  /* irregular call */
    AGREES = 8,   /* the result must be bitwise equal on all ranks */
    BLOCKS = 16,  /* a buffer has `count` elements for each rank */
};

/* An operation that the battery tests. */
struct operation {
    const char *name;
    dist_collective collective;
    unsigned flags;
    void (*shape)(struct test_case *c);                          /* NULL: the call has no buffers */
    dist_status (*call)(struct test_case *c, dist_work **works); /* works NULL: blocking call */
    void (*check)(struct test_case *c); /* more checks, before the blocks are checked; or NULL */
};

/* All operations in the order of their tests, terminated by an entry without a name. */
extern const struct operation battery_operations[];
/* Returns the operation of that name, or NULL. */
const struct operation *battery_operation(const char *name);

/* Returns the address of an element in the buffer's image. */
void *case_image(const struct test_case *c, const struct buffer *buffer, size_t element);

enum place { PLACE_APART, PLACE_IN, PLACE_IN_ON_ODD_RANKS, PLACE_COUNT };
struct variant {
    dist_dtype dtype;
    dist_op op;
    size_t count;
    int root;
    enum layout layout;
    enum place place;
};

/* Creates a case and fills its buffers. case_free releases it. */
struct test_case *case_new(struct battery *b, const struct operation *operation,
                           const struct variant *variant);
/* Checks the result after a successful call, and that nothing else has changed. */
void case_check(struct test_case *c);
/* Checks after a refused call that no buffer has changed. */
void case_check_unchanged(struct test_case *c);
void case_free(struct test_case *c);
/* Returns a description of the case in static memory. */
const char *case_name(const struct test_case *c);

#endif
