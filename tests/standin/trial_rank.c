/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank in the stand-in's own tests. */
#include "trial_rank.h"

#include <string.h>
#include <unistd.h>

const char *trial_library = "standin_cuda";

float trial_value(int r, size_t i)
{
    return (float)((int)(i * 7 + (size_t)r * 13) % 101 - 50);
}

struct nccl_id trial_id(int rank, struct meeting *meeting)
{
    if (rank == 0) {
        TRIAL(trial.ncclGetUniqueId(&meeting->id) == RESULT_Success);
        atomic_store(&meeting->ready, true);
    }
    while (!atomic_load(&meeting->ready))
        usleep(1000);
    return meeting->id;
}

void trial_rank_memory(struct rank *t, int rank, int ranks)
{
    trial_load(trial_library);
    trial_device(rank);
    t->rank = rank;
    t->ranks = ranks;
    for (size_t i = 0; i < (size_t)RANKS * COUNT; i++)
        t->host[i] = trial_value(rank, i);
    t->stream = trial_stream();
    t->in = trial_memory(t->host, sizeof(t->host));
    memset(t->host, 0, sizeof(t->host));
    t->out = trial_memory(t->host, sizeof(t->host));
}

void trial_rank_start(struct rank *t, int rank, int ranks, void *arg)
{
    trial_rank_memory(t, rank, ranks);
    TRIAL(trial.ncclCommInitRank(&t->comm, ranks, trial_id(rank, arg), rank) == RESULT_Success);
}

void trial_rank_end(struct rank *t)
{
    TRIAL(trial_driver->stream_synchronize(t->stream) == 0);
    TRIAL(trial.ncclCommDestroy(t->comm) == RESULT_Success);
    TRIAL(trial_driver->memory_free(t->in) == 0);
    TRIAL(trial_driver->memory_free(t->out) == 0);
    TRIAL(trial_driver->stream_destroy(t->stream) == 0);
}

float trial_sum(int ranks, size_t i)
{
    float sum = 0;

    for (int r = 0; r < ranks; r++)
        sum += trial_value(r, i);
    return sum;
}

void *trial_in(const struct rank *t)
{
    return (void *)t->in;
}

void *trial_out(const struct rank *t)
{
    return (void *)t->out;
}

const float *trial_result(struct rank *t)
{
    trial_read(t->host, t->out, sizeof(t->host), t->stream);
    TRIAL(trial_driver->fill(t->out, 0x77, sizeof(t->host), t->stream) == 0);
    return t->host;
}

void trial_expect(const struct rank *t, size_t at, int r, size_t from)
{
    for (size_t i = 0; i < COUNT; i++) {
        float expected = r < 0 ? trial_sum(t->ranks, from + i) : trial_value(r, from + i);

        TRIAL(t->host[at + i] == expected);
    }
}
