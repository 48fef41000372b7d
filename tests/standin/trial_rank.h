/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank in the stand-in's own tests: its communicator, and device memory of floats. */
#ifndef TESTS_STANDIN_TRIAL_RANK_H
#define TESTS_STANDIN_TRIAL_RANK_H

#include "trial.h"

#include <stdatomic.h>

#define RANKS 4
#define COUNT 1000

/* Selects the library that the ranks load. */
extern const char *trial_library;

/* Shared by the ranks. */
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

/* Return element i of rank r's input, and its sum over all ranks. */
float trial_value(int r, size_t i);
float trial_sum(int ranks, size_t i);

/* Returns the unique id of these ranks. */
struct nccl_id trial_id(int rank, struct meeting *meeting);
/* trial_rank_memory loads the library and fills the memory; trial_rank_start also joins the other
 * ranks. arg: the meeting. */
void trial_rank_memory(struct rank *t, int rank, int ranks);
void trial_rank_start(struct rank *t, int rank, int ranks, void *arg);
void trial_rank_end(struct rank *t);

/* The addresses to pass to NCCL. */
void *trial_in(const struct rank *t);
void *trial_out(const struct rank *t);
/* Returns a copy of the result, and overwrites the result in device memory. */
const float *trial_result(struct rank *t);
/*
 * Checks that the elements of the result from `at` on equal those of rank r's input from `from` on;
 * r -1: the sums over all ranks.
 */
void trial_expect(const struct rank *t, size_t at, int r, size_t from);

#endif
