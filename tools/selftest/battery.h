/* SPDX-License-Identifier: BSD-3-Clause */
/* The battery's numbers, and the results computed another way than the library does. */
#ifndef TOOLS_SELFTEST_BATTERY_H
#define TOOLS_SELFTEST_BATTERY_H

#include "selftest.h"

#include <dist/backend.h>
#include <dist/dist.h>

/*
 * Endless rows of numbers, one a rank, each within what the type can hold and the op can stand. For
 * operations of the program's own, op is DIST_PREMUL_SUM or DIST_USER.
 */
struct data {
    uint64_t seed;
    dist_dtype dtype;
    dist_op op;
};

/* Does the op make sense for the dtype? */
bool data_fits(dist_dtype dtype, dist_op op);

/* Writes count elements of rank's row, from element `first` on. */
void data_fill(const struct data *d, int rank, size_t first, size_t count, void *memory);

/*
 * What the battery's premul_sum multiplies rank's row by, and its user operation: bytes added to
 * bytes, which is no other operation, and shows what came twice or not at all.
 */
double data_factor(int rank);
void data_user(void *arg, void *dst, const void *a, const void *b, size_t count, dist_dtype dtype);

/* ---- what comes out ---- */

/*
 * Is the element at `found` the i-th of all ranks' rows, reduced? Computed rank by rank in float64,
 * or in 64-bit integers for integers; floats within the rounding of `ranks` steps. The two numbers
 * are for the message.
 */
bool data_reduced(const struct data *d, int ranks, size_t i, const void *found, double *expected_p,
                  double *found_p);

/* The conformance battery: what every backend must do, checked from outside. */

/* How a case is run. battery_modes has the words, and "all" behind the last. */
enum battery_mode {
    MODE_BLOCKING, /* the plain call */
    MODE_ASYNC,    /* the _async form, waited for at once */
    MODE_FLOOD,    /* many of them, waited for later and in another order */
    MODE_GROUP,    /* many plain calls between dist_group_start and dist_group_end */
    MODE_COUNT
};
extern const char *const battery_modes[];

/* Where a case's data are: from malloc, from dist_alloc, a GPU's, or some here and some there. */
enum battery_memory { MEMORY_ORDINARY, MEMORY_SHARED, MEMORY_DEVICE, MEMORY_ANY, MEMORY_COUNT };

/* Cases in flight at most; more than a backend is likely to run side by side. */
#define BATTERY_FLIGHT 24
/* Results whose bits the ranks have not compared yet, at most. */
#define BATTERY_HASHES 64

/* One rank's run. */
struct battery {
    dist_group *group;
    int rank, ranks;
    const char *backend;
    const char *only; /* an operation's name; NULL: all */
    enum battery_mode mode;
    enum battery_memory memory;
    bool brief;                 /* fewer counts */
    bool apart;                 /* nothing in place */
    bool complete;              /* what makes sense must be supported */
    uint32_t lacks;             /* bits of DIST_LACKS_..., as the backend says */
    uint64_t seed;              /* of the last case */
    dist_op ops[DIST_OP_COUNT]; /* what is passed for each: the built-in one, or one of our own */
    long checks, faults, cases, refusals;
    struct selftest_count *count; /* the same, for who looks on */
    int stuck_s;

    struct test_case *flight[BATTERY_FLIGHT];
    int flying;
    size_t flight_bytes;

    uint64_t hashes[BATTERY_HASHES];
    char hashed[BATTERY_HASHES][96];
    int hash_count;
};

/* Prints "rank R: FAULT ..." (the first few) and counts it. */
void battery_fault(struct battery *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Counts a check; false, and a fault, if the status is not DIST_OK. */
bool battery_ok(struct battery *b, dist_status status, const char *what);
/* Memory that was asked for, zeroed; ends the program if there is none. */
void *battery_alloc(size_t count, size_t size);

/* ---- cases: one call, its memory, and what must come of it ---- */

/*
 * Blocks of a v-form: all of one length; of many lengths (some of them 0); those with gaps,
 * shuffled; or in and out with the same address, the blocks of one in the gaps of the other.
 */
enum layout { LAYOUT_EVEN, LAYOUT_UNEVEN, LAYOUT_GAPS, LAYOUT_WOVEN, LAYOUT_COUNT };

/*
 * Memory between guards, and how it was before the call. image: where the host reads and writes
 * it, which for a device's memory is a copy.
 */
struct buffer {
    unsigned char *memory, *data, *before, *image;
    size_t bytes;
    enum battery_memory from; /* ORDINARY, SHARED or DEVICE */
};

/*
 * What must be in a result: at element `at`, count elements of rank `giver`'s row from `first` on;
 * giver REDUCED: of all ranks' rows. Whatever no block covers must be as it was.
 */
#define REDUCED (-1)
struct block {
    size_t at, count, first;
    int giver;
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

    /* The shape function's: memory, what is passed, what must come. In place, and where the layout
       is woven, `out` holds both and there is no `in`. */
    struct buffer in, out;
    const void *give;
    void *get;
    size_t *in_counts, *in_offsets, *out_counts, *out_offsets;
    int works_needed; /* 1 if it is not set */
    struct block *blocks;
    int block_count;

    dist_work **works;
    int *sources; /* of receives; -2 before */
};

enum {
    ROOTED = 1,   /* has a root */
    IN_PLACE = 2, /* has an in-place form */
    LAYOUTS = 4,  /* a v-form */
    AGREES = 8,   /* the whole result has the same bits on every rank */
    BLOCKS = 16,  /* memory of count elements for each rank */
};

/* A collective, as the battery calls it. works NULL: the plain form. */
struct operation {
    const char *name;
    dist_collective collective;
    unsigned flags;
    void (*shape)(struct test_case *c); /* NULL: no memory */
    dist_status (*call)(struct test_case *c, dist_work **works);
    void (*check)(struct test_case *c); /* before the blocks: what is only known now; may be NULL */
};

/* All of them; the last has no name. The order is that of the cases. */
extern const struct operation battery_operations[];
/* NULL: there is none of that name. */
const struct operation *battery_operation(const char *name);

/* Where an element is in the buffer's image, for the host. */
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

struct test_case *case_new(struct battery *b, const struct operation *operation,
                           const struct variant *variant);
void case_check(struct test_case *c);
void case_check_unchanged(struct test_case *c);
void case_free(struct test_case *c);
const char *case_name(const struct test_case *c);

#endif
