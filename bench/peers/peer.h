/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the workers of other libraries share: bench/protocol.h's conversation, the data, the clock.
 *
 * A worker fills in a struct peer_library, whose functions are the library's calls, and hands it to
 * peer_serve. It is built against one library each; nothing of libdist is linked.
 */
#ifndef BENCH_PEERS_PEER_H
#define BENCH_PEERS_PEER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum peer_collective {
    PEER_ALL_REDUCE,
    PEER_BROADCAST,
    PEER_REDUCE,
    PEER_ALL_GATHER,
    PEER_GATHER,
    PEER_SCATTER,
    PEER_REDUCE_SCATTER,
    PEER_ALL_TO_ALL,
    PEER_BARRIER,
    PEER_BW,
    PEER_BIBW,
    PEER_LATENCY,
    PEER_COLLECTIVES
};

enum peer_dtype {
    PEER_FLOAT32,
    PEER_FLOAT64,
    PEER_INT8,
    PEER_UINT8,
    PEER_INT32,
    PEER_UINT32,
    PEER_INT64,
    PEER_UINT64,
    PEER_DTYPES
};

enum peer_operation { PEER_SUM, PEER_PROD, PEER_MIN, PEER_MAX, PEER_OPERATIONS };

/* The memory of one call. In place: both are one buffer, or all_gather's in is a block of out. */
struct peer_set {
    void *in, *out;
    void *memory[2]; /* as allocated */
};

/* What dist_bench asks for, one "run" line. */
struct peer_run {
    enum peer_collective collective;
    enum peer_dtype dtype;
    enum peer_operation operation;
    size_t bytes;   /* as bench/protocol.h has it */
    size_t element; /* bytes */
    size_t count;   /* elements of a block: of what a rank sends to one, or of the whole buffer */
    int root, in_place, warmup, samples, batch, check, buffers;
    struct peer_set *sets;
    size_t set_count;
};

struct peer_library {
    const char *contestant;
    const char *text; /* name and version */
    int rank, ranks;
    void *state;

    /* Why this run is not possible, NULL if it is. */
    const char *(*refuse)(struct peer_library *library, const struct peer_run *run);
    /* Makes what belongs to the memory of all sets, and frees it; on all ranks. May be NULL. */
    const char *(*prepare)(struct peer_library *library, const struct peer_run *run);
    const char *(*forget)(struct peer_library *library);
    /* One call on one set, blocking; on all ranks. NULL, or the error. */
    const char *(*call)(struct peer_library *library, const struct peer_run *run, size_t set);
    /* n calls of latency, bw or bibw, on ranks 0 and 1; bw uses the sets from this one on. */
    const char *(*messages)(struct peer_library *library, const struct peer_run *run, size_t set,
                            int n);
    const char *(*barrier)(struct peer_library *library);
};

/*
 * Connects to dist_bench and answers until it says quit or goes away; blocks. Returns the exit
 * status: 0, or 1 with a text on stderr.
 */
int peer_serve(struct peer_library *library);

/* data.c: the bytes of the set's in and out, for this many ranks; a barrier has none. */
size_t peer_in_bytes(const struct peer_run *run, int ranks);
size_t peer_out_bytes(const struct peer_run *run, int ranks);

/* Fresh data for one set, another for each seed; spoils out. */
void peer_fill(const struct peer_run *run, int rank, int ranks, unsigned seed,
               const struct peer_set *set);

/* Compares the whole result. Returns 1 if it is right, else 0 with the block and element that is
 * not in *block_p and *element_p. */
int peer_right(const struct peer_run *run, int rank, int ranks, unsigned seed,
               const struct peer_set *set, size_t *block_p, size_t *element_p);

#ifdef __cplusplus
}
#endif

#endif
