/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank in the stand-in's own tests: its communicator, and device memory of floats. */
#ifndef TESTS_STANDIN_TRIAL_RANK_H
#define TESTS_STANDIN_TRIAL_RANK_H

#include "trial.h"

#include <stdatomic.h>

#define RANKS 4
#define COUNT 1000

/* Which of the libraries the ranks load. */
extern const char *trial_library;

/* What the ranks share. */
struct meeting {
    struct nccl_id id;
    atomic_bool ready, told;
};

struct rank {
    int rank, ranks;
    struct ncclComm *comm;
    void *stream;
    uintptr_t in, out;
    float host[RANKS * COUNT];
};

/* Element i of what rank r gives; the sum of all ranks'. */
float trial_value(int r, size_t i);
float trial_sum(int ranks, size_t i);

/* The unique id of these ranks. */
struct nccl_id trial_id(int rank, struct meeting *meeting);
/* Loads the library and fills the memory; start: joins the others too. arg: the meeting. */
void trial_rank_memory(struct rank *t, int rank, int ranks);
void trial_rank_start(struct rank *t, int rank, int ranks, void *arg);
void trial_rank_end(struct rank *t);

/* The memory as it is passed. */
void *trial_in(const struct rank *t);
void *trial_out(const struct rank *t);
/* Reads the result, and soils it for the next. */
const float *trial_result(struct rank *t);
/* Elements at, at + 1, ... of the result are rank r's from `from` on; r -1: the sums. */
void trial_expect(const struct rank *t, size_t at, int r, size_t from);

#endif
