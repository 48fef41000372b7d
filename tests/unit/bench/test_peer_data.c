/* SPDX-License-Identifier: BSD-3-Clause */
/* The data and the comparisons of the workers that measure other libraries. */
#include "bench/peers/peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 3
#define COUNT 10000 /* some tiles, the last one in part */
#define SEED 5

/* All ranks' memory for one run of float. */
struct job {
    struct peer_run run;
    struct peer_set sets[RANKS];
};

static void job_open(struct job *job, enum peer_collective collective, enum peer_operation op)
{
    *job = (struct job){.run = {.collective = collective,
                                .dtype = PEER_FLOAT32,
                                .operation = op,
                                .element = sizeof(float),
                                .count = COUNT,
                                .root = 1}};
    for (int r = 0; r < RANKS; r++) {
        job->sets[r].in = calloc(RANKS * COUNT, sizeof(float));
        job->sets[r].out = calloc(RANKS * COUNT, sizeof(float));
        peer_fill(&job->run, r, RANKS, SEED, &job->sets[r]);
    }
}

static void job_close(struct job *job)
{
    for (int r = 0; r < RANKS; r++) {
        free(job->sets[r].in);
        free(job->sets[r].out);
    }
}

static float *block(void *memory, int b)
{
    return (float *)memory + (size_t)b * COUNT;
}

static float combined(enum peer_operation op, float a, float b)
{
    if (op == PEER_MIN)
        return a < b ? a : b;
    if (op == PEER_MAX)
        return a > b ? a : b;
    return op == PEER_PROD ? a * b : a + b;
}

/* Does what the library would: element by element. */
static void job_run(struct job *job, int r)
{
    enum peer_collective c = job->run.collective;

    for (int b = 0; b < RANKS; b++) {
        float *out = block(job->sets[r].out, b);

        for (size_t i = 0; i < COUNT; i++) {
            if (c == PEER_ALL_GATHER)
                out[i] = block(job->sets[b].in, 0)[i];
            else if (c == PEER_ALL_TO_ALL)
                out[i] = block(job->sets[b].in, r)[i];
            else if (c == PEER_BROADCAST)
                out[i] = block(job->sets[1].in, 0)[i];
            else if (c == PEER_SCATTER)
                out[i] = block(job->sets[1].in, r)[i];
            else if (b == 0)
                out[i] =
                    combined(job->run.operation,
                             combined(job->run.operation,
                                      block(job->sets[0].in, c == PEER_REDUCE_SCATTER ? r : 0)[i],
                                      block(job->sets[1].in, c == PEER_REDUCE_SCATTER ? r : 0)[i]),
                             block(job->sets[2].in, c == PEER_REDUCE_SCATTER ? r : 0)[i]);
        }
    }
}

static void test_right_results(void **state)
{
    static const enum peer_collective all[] = {PEER_ALL_REDUCE, PEER_REDUCE_SCATTER,
                                               PEER_ALL_GATHER, PEER_ALL_TO_ALL,
                                               PEER_BROADCAST,  PEER_SCATTER};
    size_t b, e;

    (void)state;
    for (size_t c = 0; c < sizeof(all) / sizeof(all[0]); c++) {
        for (int op = 0; op < PEER_OPERATIONS; op++) {
            struct job job;

            job_open(&job, all[c], (enum peer_operation)op);
            for (int r = 0; r < RANKS; r++) {
                job_run(&job, r);
                assert_true(peer_right(&job.run, r, RANKS, SEED, &job.sets[r], &b, &e));
                assert_false(peer_right(&job.run, r, RANKS, SEED + 1, &job.sets[r], &b, &e));
            }
            job_close(&job);
        }
    }
}

/* Any single element, and tiles or blocks that are exchanged, are found. */
static void test_wrong_results(void **state)
{
    static const size_t spots[] = {0, 1, 4095, 4096, COUNT - 1};
    struct job job;
    size_t b, e;

    (void)state;
    job_open(&job, PEER_ALL_GATHER, PEER_SUM);
    job_run(&job, 2);
    for (size_t s = 0; s < sizeof(spots) / sizeof(spots[0]); s++) {
        block(job.sets[2].out, 1)[spots[s]] += 1;
        assert_false(peer_right(&job.run, 2, RANKS, SEED, &job.sets[2], &b, &e));
        assert_int_equal(b, 1);
        assert_int_equal(e, spots[s]);
        block(job.sets[2].out, 1)[spots[s]] -= 1;
    }
    memmove(block(job.sets[2].out, 1), block(job.sets[2].out, 1) + 4096, 4096 * sizeof(float));
    assert_false(peer_right(&job.run, 2, RANKS, SEED, &job.sets[2], &b, &e));
    job_run(&job, 2);
    memcpy(block(job.sets[2].out, 0), block(job.sets[2].out, 2), COUNT * sizeof(float));
    assert_false(peer_right(&job.run, 2, RANKS, SEED, &job.sets[2], &b, &e));
    assert_int_equal(b, 0);
    job_close(&job);
}

/* Integers wrap as a library's do. */
static void test_integers_wrap(void **state)
{
    struct peer_run run = {.collective = PEER_ALL_REDUCE,
                           .dtype = PEER_INT8,
                           .operation = PEER_SUM,
                           .element = 1,
                           .count = 100};
    int8_t in[100], out[100], sum[100] = {0};
    struct peer_set set = {.in = in, .out = out};
    size_t b, e;

    (void)state;
    for (int r = 0; r < 50; r++) {
        peer_fill(&run, r, 50, SEED, &set);
        for (int i = 0; i < 100; i++)
            sum[i] = (int8_t)((uint8_t)sum[i] + (uint8_t)in[i]);
    }
    memcpy(out, sum, sizeof(out));
    assert_true(peer_right(&run, 0, 50, SEED, &set, &b, &e));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_results),
        cmocka_unit_test(test_wrong_results),
        cmocka_unit_test(test_integers_wrap),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
