/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * reproducible BACKEND RANKS MODE: reduces numbers of very different magnitude in several ways and
 * prints "hash HEX" over all results. RANKS 0: the launcher's number of ranks. MODE:
 *
 *   option       struct dist_options requests reproducible results: all ways must give equal bits
 *   places       as option, but ranks are placed on the machine in another order than their numbers
 *   rounding     as option, with another floating-point environment in each odd rank
 *   environment  as option, but requested by DIST_REPRODUCIBLE, which the caller has set
 *   free         not requested: one way only
 */
#include "../unit/base/environment.h"

#include <dist/dist.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A prime, larger than a pipeline segment for the wide types. */
#define COUNT 20011
#define RANKS_MAX 8

/* A float type; `reach` limits the exponents so that the sum of eight numbers is finite. */
struct number {
    dist_dtype dtype;
    int exponent_bits, mantissa_bits, reach;
};

static const struct number numbers[] = {{DIST_FLOAT32, 8, 23, 24},
                                        {DIST_FLOAT64, 11, 52, 50},
                                        {DIST_FLOAT16, 5, 10, 9},
                                        {DIST_BFLOAT16, 8, 7, 12}};

struct run {
    const char *backend, *mode;
    int ranks, rank;
    dist_group *group;
    bool faulty;
};

/* A reduction: its input, and the first result with which later results are compared. */
struct job {
    struct run *run;
    const struct number *number;
    dist_op op;
    size_t element;
    unsigned char *in, *first, *out;
};

static uint64_t job_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Fills the input with numbers of any sign and mantissa. Exponents are within +-reach, or within
 * +-1 for products, so that no product underflows. */
static void job_fill(struct job *job)
{
    const struct number *n = job->number;
    int bias = (1 << (n->exponent_bits - 1)) - 1, reach = job->op == DIST_PROD ? 1 : n->reach;

    for (size_t i = 0; i < COUNT; i++) {
        uint64_t random = job_mix(job_mix((uint64_t)job->run->rank + 1) + i);
        int power = (int)(random >> 56) % (2 * reach + 1) - reach;
        uint64_t bits = random & ((UINT64_C(1) << n->mantissa_bits) - 1);

        bits |= (uint64_t)(bias + power) << n->mantissa_bits;
        bits |= (random >> 55 & 1) << (n->mantissa_bits + n->exponent_bits);
        memcpy(job->in + i * job->element, &bits, job->element);
    }
}

static void job_try(struct job *job, dist_status status)
{
    if (status == DIST_OK)
        return;
    fprintf(stderr, "rank %d: FAULT %s\n", job->run->rank, dist_last_error());
    job->run->faulty = true;
}

/* ---- ways to compute the same result, in job->out ---- */

static void way_whole(struct job *job)
{
    job_try(job, dist_all_reduce(job->run->group, job->in, job->out, COUNT, job->number->dtype,
                                 job->op));
}

static void way_slices(struct job *job)
{
    static const size_t sizes[] = {1, 7, 1000, 4099, 64};

    for (size_t at = 0, turn = 0; at < COUNT; turn++) {
        size_t count = sizes[turn % (sizeof(sizes) / sizeof(sizes[0]))];

        if (count > COUNT - at)
            count = COUNT - at;
        job_try(job,
                dist_all_reduce(job->run->group, job->in + at * job->element,
                                job->out + at * job->element, count, job->number->dtype, job->op));
        at += count;
    }
}

#define BUCKETS 9

static void way_coalesced(struct job *job)
{
    void *buffers[BUCKETS];
    size_t counts[BUCKETS], at = 0;

    memcpy(job->out, job->in, COUNT * job->element);
    for (int i = 0; i < BUCKETS; i++) {
        counts[i] = i + 1 < BUCKETS ? (size_t)(i * i) * 61 : COUNT - at;
        buffers[i] = job->out + at * job->element;
        at += counts[i];
    }
    job_try(job, dist_all_reduce_coalesced(job->run->group, buffers, counts, BUCKETS,
                                           job->number->dtype, job->op));
}

static void way_reduce_and_broadcast(struct job *job)
{
    int root = job->run->ranks - 1;

    job_try(job, dist_reduce(job->run->group, job->in, job->out, COUNT, job->number->dtype, job->op,
                             root));
    job_try(job, dist_broadcast(job->run->group, job->out, COUNT, job->number->dtype, root));
}

/* Uses blocks of unequal size; rank 0's block is the largest by far. */
static void way_scatter_and_gather(struct job *job)
{
    int ranks = job->run->ranks, rank = job->run->rank;
    size_t counts[RANKS_MAX], offsets[RANKS_MAX], at = 0;

    for (int r = ranks - 1; r > 0; r--)
        counts[r] = (size_t)r * 307;
    counts[0] = COUNT - 307 * (size_t)(ranks * (ranks - 1) / 2);
    for (int r = 0; r < ranks; r++) {
        offsets[r] = at;
        at += counts[r];
    }
    job_try(job,
            dist_reduce_scatter_v(job->run->group, job->in, job->out + offsets[rank] * job->element,
                                  counts, job->number->dtype, job->op));
    job_try(job, dist_all_gather_v(job->run->group, job->out + offsets[rank] * job->element,
                                   job->out, counts, NULL, job->number->dtype));
}

/* Uses equal blocks; the remaining elements are reduced separately. */
static void way_equal_blocks(struct job *job)
{
    size_t block = COUNT / (size_t)job->run->ranks, done = block * (size_t)job->run->ranks;
    unsigned char *own = job->out + (size_t)job->run->rank * block * job->element;

    job_try(job,
            dist_reduce_scatter(job->run->group, job->in, own, block, job->number->dtype, job->op));
    job_try(job, dist_all_gather(job->run->group, own, job->out, block, job->number->dtype));
    job_try(job, dist_all_reduce(job->run->group, job->in + done * job->element,
                                 job->out + done * job->element, COUNT - done, job->number->dtype,
                                 job->op));
}

static const struct {
    const char *name;
    void (*run)(struct job *job);
} ways[] = {
    {"all_reduce", way_whole},
    {"all_reduce of slices", way_slices},
    {"all_reduce_coalesced", way_coalesced},
    {"reduce and broadcast", way_reduce_and_broadcast},
    {"reduce_scatter_v and all_gather_v", way_scatter_and_gather},
    {"reduce_scatter and all_gather", way_equal_blocks},
};

/* ---- main ---- */

static uint64_t job_hash(uint64_t hash, const unsigned char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ data[i]) * 0x100000001b3u;
    return hash;
}

static void job_compare(struct job *job, const char *way)
{
    for (size_t i = 0; i < COUNT; i++) {
        if (memcmp(job->out + i * job->element, job->first + i * job->element, job->element) == 0)
            continue;
        fprintf(stderr, "rank %d: FAULT %s of %s %s: element %zu has other bits than with %s\n",
                job->run->rank, way, dist_op_string(job->op), dist_dtype_string(job->number->dtype),
                i, ways[0].name);
        job->run->faulty = true;
        return;
    }
}

static uint64_t job_run(struct run *run, const struct number *number, dist_op op, uint64_t hash)
{
    struct job job = {.run = run, .number = number, .op = op};
    bool free_order = strcmp(run->mode, "free") == 0;

    job.element = dist_dtype_size(number->dtype);
    job.in = malloc(COUNT * job.element);
    job.first = malloc(COUNT * job.element);
    job.out = malloc(COUNT * job.element);
    if (!job.in || !job.first || !job.out)
        exit(1);
    job_fill(&job);
    for (size_t way = 0; way < (free_order ? 1 : sizeof(ways) / sizeof(ways[0])); way++) {
        memset(job.out, 0x5a, COUNT * job.element);
        ways[way].run(&job);
        if (way == 0)
            memcpy(job.first, job.out, COUNT * job.element);
        job_compare(&job, ways[way].name);
    }
    hash = job_hash(hash, job.first, COUNT * job.element);
    free(job.in);
    free(job.first);
    free(job.out);
    return hash;
}

static int run_rank(int number, void *arg)
{
    struct run *run = arg;
    struct dist_options options = DIST_OPTIONS_INIT;
    uint64_t hash = 0xcbf29ce484222325u;
    bool places = strcmp(run->mode, "places") == 0, odd = strcmp(run->mode, "rounding") == 0;
    dist_op ops[] = {DIST_SUM, DIST_AVG, DIST_PROD, DIST_PREMUL_SUM};

    options.backend = run->backend;
    options.reproducible = strcmp(run->mode, "option") == 0 || places || odd;
    if (places) /* odd ranks see a larger machine and take its higher cores */
        setenv("HWLOC_SYNTHETIC", number % 2 ? "core:64 pu:1" : "core:8 pu:1", 1);
    if (dist_init_process_group(&options, &run->group) != DIST_OK) {
        fprintf(stderr, "init: %s\n", dist_last_error());
        return 1;
    }
    run->rank = dist_get_rank(run->group);
    run->ranks = dist_get_world_size(run->group);
    if (dist_op_create_premul_sum(1 + run->rank / 7.0, &ops[3]) != DIST_OK)
        run->faulty = true;
    if (odd && run->rank % 2)
        environment_odd();
    for (size_t n = 0; n < sizeof(numbers) / sizeof(numbers[0]); n++) {
        for (size_t op = 0; op < sizeof(ops) / sizeof(ops[0]); op++)
            hash = job_run(run, &numbers[n], ops[op], hash);
    }
    dist_op_free(ops[3]);
    if (dist_destroy_process_group(run->group) != DIST_OK)
        run->faulty = true;
    if (run->rank == 0)
        printf("hash %016llx\n", (unsigned long long)hash);
    return run->faulty ? 1 : 0;
}

int main(int argc, char **argv)
{
    struct run run = {.backend = argc > 1 ? argv[1] : "", .mode = argc > 3 ? argv[3] : ""};
    int code = 1;

    run.ranks = argc > 2 ? atoi(argv[2]) : 0;
    if (argc != 4 || run.ranks < 0 || run.ranks > RANKS_MAX)
        return 2;
    if (run.ranks == 0)
        return run_rank(0, &run);
    if (dist_spawn(run.ranks, run_rank, &run, &code) != DIST_OK)
        fprintf(stderr, "spawn: %s\n", dist_last_error());
    return code;
}
