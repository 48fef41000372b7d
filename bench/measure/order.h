/* SPDX-License-Identifier: BSD-3-Clause */
/* An order: what to run, and how often. protocol.h says how it is written. */
#ifndef BENCH_ORDER_H
#define BENCH_ORDER_H

#include "operation.h"

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

/* The outcome that a line's first word names, *rest_p what follows; -1: none. */
int outcome_read(const char *line, const char **rest_p);

#endif
