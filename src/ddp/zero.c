/* SPDX-License-Identifier: BSD-3-Clause */
/* The sharded optimizer: the shares of the ranks, and the steps. */
#include "base/checked.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/kernels/environment.h"
#include "base/log.h"
#include "ddp/ddp.h"
#include "device/driver.h"

#include <dist/backend.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/*
 * Values and gradients are two arrays with all parameters in order. Buckets are numbered from the
 * end, where gradients become ready first. Each bucket is divided into one share per rank, which
 * that rank owns:
 *
 *     |------------- bucket 1 -------------|------------- bucket 0 -------------|
 *     |   w0    |b0|     w1      |b1|   w2 |       w3        |b3|  w4   | b4    |
 *     | rank 0    | rank 1    | rank 2     | rank 0    | rank 1    | rank 2     |
 *
 * The optimizer state of a rank's shares is stored bucket by bucket, with one array per state
 * number.
 */
struct zero_parameter {
    char *name;
    size_t count;
    const float *source; /* the program's gradient; NULL: the program writes to our array */
    size_t at;           /* offset in values and gradients; all offsets are in elements */
    int bucket;
    bool ready; /* marked ready in this step: the library owns the gradient */
};

struct zero_bucket {
    size_t at, count;
    size_t *counts, *offsets; /* each rank's share; the offset is relative to `at` */
    size_t owned_at;          /* offset of this rank's share in a state array */
    int first, last;          /* index of the first and of the last parameter */
    int missing;              /* number of gradients that are not ready */
    dist_work *work;          /* request in progress; NULL: none */
};

/* A range of a parameter that this rank owns. */
struct zero_block {
    int parameter;
    size_t first, count; /* range of elements of the parameter */
    size_t at;           /* offset in values and gradients */
    size_t owned_at;     /* offset in a state array */
};

/* Method by which the ranks access each other's gradients and values. */
struct zero_form {
    dist_status (*start)(struct dist_zero *zero); /* called when a gradient becomes ready; may be
                                                   * NULL */
    dist_status (*finish)(struct dist_zero *zero);
    dist_status (*sync)(struct dist_zero *zero); /* copies rank 0's values to all ranks */
};

/* Maximum elements of a block, so that its data, state and sums fit in a core's own cache. */
#define ZERO_BLOCK 4096

struct dist_zero {
    dist_group *group;
    int rank, world;
    struct dist_zero_options options;
    const struct zero_form *form;
    struct zero_parameter *parameters;
    int count;
    struct zero_bucket *buckets;
    int bucket_count;
    int next;        /* first bucket that has not started */
    size_t *shares;  /* counts and offsets of all buckets */
    size_t elements; /* number of values, and of gradients */
    size_t owned;    /* elements that this rank owns */
    float *values, *gradients;
    void *memory;  /* zero_network: values and gradients */
    void **parts;  /* zero_machine, by rank: the shared memory of each rank */
    float **peers; /* zero_machine, by rank: the gradients */
    float *tiles;  /* zero_machine: partial sums of a block, ZERO_TILES x ZERO_BLOCK */
    float *state;
    double squares;      /* sum of the squares of the reduced gradients that this rank owns */
    float scale;         /* factor of the gradients, by max_norm */
    uint64_t step_count; /* completed steps, as the program counts them */
    dist_status failed;  /* the error that ended the dist_zero */
    bool destroyed;      /* all other fields are zero */
    struct dist_zero_stats stats;
};

/* Processes a block that this rank owns. */
typedef dist_status (*zero_visit_fn)(struct dist_zero *zero, const struct zero_block *block);

enum { ZERO_FIRST_BUCKET = 1 << 20, ZERO_BUCKET = 25 << 20 };

/* Shares begin on cache lines, so that each line has one owner. In elements. */
#define ZERO_LINE ((size_t)64 / sizeof(float))

/* Divides a bucket into shares of whole cache lines, as equal as possible. */
static void layout_share(struct dist_zero *zero, struct zero_bucket *bucket)
{
    const size_t end = bucket->at + bucket->count, world = (size_t)zero->world;
    const size_t line = bucket->at / ZERO_LINE, lines = (end + ZERO_LINE - 1) / ZERO_LINE - line;
    size_t begin = bucket->at;

    for (size_t r = 0; r < world; r++) {
        /* lines * (r + 1) / world, without overflow */
        const size_t upto = lines / world * (r + 1) + lines % world * (r + 1) / world;
        const size_t limit = (line + upto) * ZERO_LINE;
        const size_t past = r + 1 < world && limit < end ? limit : end;

        bucket->offsets[r] = begin - bucket->at;
        bucket->counts[r] = past > begin ? past - begin : 0;
        begin += bucket->counts[r];
    }
    bucket->owned_at = zero->owned;
    zero->owned += bucket->counts[zero->rank];
}

/*
 * Places the parameters consecutively, and divides them into buckets from the last one on: a bucket
 * ends with the gradient that reaches its size limit.
 */
static dist_status zero_layout(struct dist_zero *zero)
{
    const size_t most = PTRDIFF_MAX / sizeof(float) / (DIST_ZERO_STATE_MAX + 2);
    const size_t first = zero->options.first_bucket_bytes, later = zero->options.bucket_bytes;
    const size_t world = (size_t)zero->world;
    size_t limit = first ? first : ZERO_FIRST_BUCKET, end;
    int last = zero->count - 1;

    for (int i = 0; i < zero->count; i++) {
        zero->parameters[i].at = zero->elements;
        if (!disti_add(zero->elements, zero->parameters[i].count, &zero->elements) ||
            zero->elements > most)
            return disti_fail(
                DIST_ERR_INVALID_ARGUMENT,
                "dist_zero_create: the total size of the parameters exceeds the address space");
    }
    end = zero->elements;
    for (int i = last; i >= 0; i--) {
        const size_t at = zero->parameters[i].at;

        zero->parameters[i].bucket = zero->bucket_count;
        if ((end - at) * sizeof(float) < limit && i > 0)
            continue;
        zero->buckets[zero->bucket_count++] = (struct zero_bucket){
            .at = at, .count = end - at, .first = i, .last = last, .missing = last - i + 1};
        limit = later ? later : ZERO_BUCKET;
        end = at;
        last = i - 1;
    }
    zero->shares = calloc((size_t)zero->bucket_count * world, 2 * sizeof(*zero->shares));
    if (!zero->shares)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for %d buckets", zero->bucket_count);
    for (int i = 0; i < zero->bucket_count; i++) {
        zero->buckets[i].counts = zero->shares + 2 * world * (size_t)i;
        zero->buckets[i].offsets = zero->buckets[i].counts + world;
        layout_share(zero, &zero->buckets[i]);
    }
    return DIST_OK;
}

static size_t zero_share_begin(const struct dist_zero *zero, const struct zero_bucket *bucket)
{
    return bucket->at + bucket->offsets[zero->rank];
}

/* Returns how many elements of a parameter `rank` owns; *first_p is the first of them. */
static size_t zero_part(const struct dist_zero *zero, int index, int rank, size_t *first_p)
{
    const struct zero_parameter *parameter = &zero->parameters[index];
    const struct zero_bucket *bucket = &zero->buckets[parameter->bucket];
    const size_t begin = bucket->at + bucket->offsets[rank], end = begin + bucket->counts[rank];
    const size_t first = begin > parameter->at ? begin - parameter->at : 0;
    const size_t past = end > parameter->at ? end - parameter->at : 0;
    const size_t limit = past < parameter->count ? past : parameter->count;

    *first_p = first < limit ? first : 0;
    return first < limit ? limit - first : 0;
}

static dist_status zero_process_bucket(struct dist_zero *zero, const struct zero_bucket *bucket,
                                       zero_visit_fn visit)
{
    const size_t begin = zero_share_begin(zero, bucket);
    dist_status status = DIST_OK;

    for (int i = bucket->first; i <= bucket->last; i++) {
        size_t first, left = zero_part(zero, i, zero->rank, &first);

        while (left > 0 && status == DIST_OK) {
            const size_t at = zero->parameters[i].at + first;
            const struct zero_block block = {.parameter = i,
                                             .first = first,
                                             .count = left < ZERO_BLOCK ? left : ZERO_BLOCK,
                                             .at = at,
                                             .owned_at = bucket->owned_at + (at - begin)};

            status = visit(zero, &block);
            first += block.count;
            left -= block.count;
        }
    }
    return status;
}

/* ---- failures ---- */

/* Waits for a bucket's request, if any, and clears it. */
static dist_status zero_wait(struct dist_zero *zero, struct zero_bucket *bucket)
{
    const int64_t began = disti_now_ns();
    dist_work *work = bucket->work;
    dist_status status;

    bucket->work = NULL;
    status = work ? dist_wait(work) : DIST_OK;
    zero->stats.waited += (double)(disti_now_ns() - began) * 1e-9;
    return status;
}

/*
 * Fails the dist_zero after an error: aborts the group and waits for all requests. Returns the
 * first error.
 */
static dist_status zero_fail(struct dist_zero *zero, dist_status status)
{
    char text[1024];

    if (zero->failed == DIST_OK) {
        disti_text(text, sizeof(text), "%s", dist_last_error());
        zero->failed = status;
        dist_abort(zero->group);
        for (int i = 0; i < zero->bucket_count; i++)
            zero_wait(zero, &zero->buckets[i]);
        disti_fail_unlogged(text);
    }
    return zero->failed;
}

/* Rejects a handle that is NULL, destroyed or failed. `call` is for the message. */
static dist_status zero_check(const struct dist_zero *zero, const char *call)
{
    if (!zero)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s: zero is NULL", call);
    if (zero->destroyed)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s: the dist_zero was destroyed", call);
    if (zero->failed != DIST_OK)
        return disti_fail(DIST_ERR_ABORTED,
                          "rank %d: %s: the dist_zero ended with an earlier error (%s): destroy it",
                          zero->rank, call, dist_status_string(zero->failed));
    return DIST_OK;
}

static bool zero_is_in_step(const struct dist_zero *zero)
{
    for (int i = 0; i < zero->count; i++)
        if (zero->parameters[i].ready)
            return true;
    return false;
}

/* As zero_check; also rejects calls during a step. */
static dist_status zero_check_between(const struct dist_zero *zero, const char *call)
{
    dist_status status = zero_check(zero, call);

    if (status == DIST_OK && zero_is_in_step(zero))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "%s: a step is under way: call dist_zero_finish first", call);
    return status;
}

/* ---- the step of a block ---- */

/* Computes the norm over all ranks, and the factor that reduces it to max_norm. Collective. */
static dist_status zero_clip(struct dist_zero *zero)
{
    const int64_t began = disti_now_ns();
    dist_status status =
        dist_all_reduce(zero->group, &zero->squares, &zero->squares, 1, DIST_FLOAT64, DIST_SUM);

    zero->stats.waited += (double)(disti_now_ns() - began) * 1e-9;
    if (status == DIST_OK) {
        const disti_environment saved = disti_environment_enter();
        const double limit = zero->options.max_norm, norm = sqrt(zero->squares);

        zero->stats.norm = norm;
        if (isfinite(norm) && norm > limit)
            zero->scale = (float)(limit / (norm + 1e-6));
        disti_environment_leave(saved);
    }
    return status;
}

/* Calls the optimizer for a block with these gradients. */
static dist_status zero_update(struct dist_zero *zero, const struct zero_block *block,
                               float *gradients)
{
    float *state[DIST_ZERO_STATE_MAX];
    struct dist_zero_slice slice = {.parameter = block->parameter,
                                    .first = block->first,
                                    .count = block->count,
                                    .values = zero->values + block->at,
                                    .gradients = gradients,
                                    .state = state,
                                    .state_floats = zero->options.state_floats,
                                    .step = zero->step_count + 1};
    int result;

    for (int k = 0; k < slice.state_floats; k++)
        state[k] = zero->state + (size_t)k * zero->owned + block->owned_at;
    if (zero->scale < 1.0f) {
        const disti_environment saved = disti_environment_enter();

        for (size_t i = 0; i < block->count; i++)
            gradients[i] *= zero->scale;
        disti_environment_leave(saved);
    }
    result = zero->options.step(zero->options.step_arg, &slice);
    if (result == 0)
        return DIST_OK;
    return disti_fail(DIST_ERR_ABORTED,
                      "rank %d: dist_zero_finish: the step function returned %d for %s", zero->rank,
                      result, zero->parameters[block->parameter].name);
}

/* Processes this rank's shares of a range of buckets. */
static dist_status zero_process(struct dist_zero *zero, int first, int count, zero_visit_fn visit)
{
    const int64_t began = disti_now_ns();
    dist_status status = DIST_OK;

    for (int i = first; i < first + count && status == DIST_OK; i++)
        status = zero_process_bucket(zero, &zero->buckets[i], visit);
    zero->stats.worked += (double)(disti_now_ns() - began) * 1e-9;
    return status;
}

static dist_status update_in_place(struct dist_zero *zero, const struct zero_block *block)
{
    return zero_update(zero, block, zero->gradients + block->at);
}

/* ---- zero_machine: all ranks are on one machine and share one copy of the parameters ---- */

/*
 *     rank 0   forward  backward  |barrier|  sum and update share 0  |barrier|  forward ...
 *     rank 1   forward  backward  |       |  sum and update share 1  |       |  forward ...
 *
 * Before the first barrier, ranks only read the parameters. Between the barriers, each rank reads
 * its share of all ranks' gradients and writes its share of the parameters, and accesses nothing
 * else. With max_norm the sum of squares is reduced between sums and updates.
 */
static dist_status machine_barrier(struct dist_zero *zero)
{
    const int64_t began = disti_now_ns();
    dist_status status = dist_barrier(zero->group);

    zero->stats.waited += (double)(disti_now_ns() - began) * 1e-9;
    return status;
}

/*
 * A sum over all ranks of `count` gradients, from offset `at`. The number of operands is the
 * largest power of two that is not above the number of ranks; each operand below `surplus` is the
 * sum of two ranks' gradients, each other operand has one rank's gradients.
 */
struct machine_sum {
    const struct dist_zero *zero;
    size_t at, count;
    int surplus;
};

/*
 * Returns the sum of operands `first` to `first + operands - 1`. Adds in the same order as
 * reproducible all-reduces, and all-reduces on one machine: in a balanced tree of the operands. So
 * the result equals that of dist_ddp bit by bit.
 */
static float *machine_add(const struct machine_sum *sum, int first, int operands, float *dst,
                          float *tiles)
{
    float *const *peers = sum->zero->peers;
    const float *left, *right;

    if (operands == 1 && first >= sum->surplus)
        return peers[first + sum->surplus] + sum->at;
    if (operands == 1) {
        left = peers[2 * first] + sum->at;
        right = peers[2 * first + 1] + sum->at;
    } else {
        left = machine_add(sum, first, operands / 2, dst, tiles);
        right = machine_add(sum, first + operands / 2, operands / 2, tiles, tiles + ZERO_BLOCK);
    }
    disti_reduce(DIST_FLOAT32, DIST_SUM, dst, left, right, sum->count);
    return dst;
}

/*
 * Returns the sum or mean of all ranks' gradients for a block: in zero->tiles, or for a single rank
 * in place.
 */
static float *machine_reduce(const struct dist_zero *zero, const struct zero_block *block)
{
    const dist_op op = zero->options.sum ? DIST_SUM : DIST_AVG;
    struct machine_sum sum = {.zero = zero, .at = block->at, .count = block->count};
    float *reduced;
    int operands = 1;

    while (operands * 2 <= zero->world)
        operands *= 2;
    sum.surplus = zero->world - operands;
    reduced = machine_add(&sum, 0, operands, zero->tiles, zero->tiles + ZERO_BLOCK);
    disti_finish(reduced, block->count, DIST_FLOAT32, op, zero->world);
    return reduced;
}

/* Updates a block while its sums are in cache. */
static dist_status machine_update(struct dist_zero *zero, const struct zero_block *block)
{
    return zero_update(zero, block, machine_reduce(zero, block));
}

/* Adds the squares of a block to zero->squares. */
static void zero_square(struct dist_zero *zero, const float *gradients, size_t count)
{
    const disti_environment saved = disti_environment_enter();

    zero->squares += disti_squares(gradients, count, DIST_FLOAT32);
    disti_environment_leave(saved);
}

/* Stores the sums in this rank's gradients: no other rank reads this rank's share of them. */
static dist_status machine_square(struct dist_zero *zero, const struct zero_block *block)
{
    const float *reduced = machine_reduce(zero, block);

    memmove(zero->gradients + block->at, reduced, block->count * sizeof(*reduced));
    zero_square(zero, reduced, block->count);
    return DIST_OK;
}

static dist_status machine_finish(struct dist_zero *zero)
{
    const bool clips = zero->options.max_norm > 0.0;
    dist_status status = machine_barrier(zero);

    if (status == DIST_OK && clips)
        status = zero_process(zero, 0, zero->bucket_count, machine_square);
    if (status == DIST_OK && clips)
        status = zero_clip(zero);
    if (status == DIST_OK)
        status =
            zero_process(zero, 0, zero->bucket_count, clips ? update_in_place : machine_update);
    return status == DIST_OK ? machine_barrier(zero) : status;
}

/* After a barrier all ranks see the values that rank 0 wrote. */
static const struct zero_form zero_machine = {.finish = machine_finish, .sync = machine_barrier};

/*
 * zero_network: ranks on several machines. Each bucket's shares are reduced to their owners, and
 * gathered after the update.
 */

/*
 * Starts full buckets, in the same order on every rank. Tests the first request, so that programs
 * without a progress thread make progress.
 */
static dist_status network_start(struct dist_zero *zero)
{
    dist_status status = DIST_OK;
    bool done;

    while (zero->next < zero->bucket_count && zero->buckets[zero->next].missing == 0 &&
           status == DIST_OK) {
        struct zero_bucket *bucket = &zero->buckets[zero->next++];

        status = dist_reduce_scatter_v_async(
            zero->group, zero->gradients + bucket->at,
            zero->gradients + zero_share_begin(zero, bucket), bucket->counts, DIST_FLOAT32,
            zero->options.sum ? DIST_SUM : DIST_AVG, &bucket->work);
    }
    if (status == DIST_OK && zero->next > 0)
        status = dist_test(zero->buckets[0].work, &done);
    return status;
}

static dist_status network_square(struct dist_zero *zero, const struct zero_block *block)
{
    zero_square(zero, zero->gradients + block->at, block->count);
    return DIST_OK;
}

/* The parameters of a bucket are gathered while the next bucket is updated. */
static dist_status network_finish(struct dist_zero *zero)
{
    const bool clips = zero->options.max_norm > 0.0;
    dist_status status = DIST_OK;

    /* All gradients must be reduced before the first one is scaled. */
    for (int i = 0; clips && i < zero->bucket_count && status == DIST_OK; i++) {
        status = zero_wait(zero, &zero->buckets[i]);
        if (status == DIST_OK)
            status = zero_process(zero, i, 1, network_square);
    }
    if (clips && status == DIST_OK)
        status = zero_clip(zero);
    for (int i = 0; i < zero->bucket_count && status == DIST_OK; i++) {
        status = zero_wait(zero, &zero->buckets[i]);
        if (status == DIST_OK)
            status = zero_process(zero, i, 1, update_in_place);
        if (status == DIST_OK)
            status = dist_all_gather_v_async(
                zero->group, zero->values + zero_share_begin(zero, &zero->buckets[i]),
                zero->values + zero->buckets[i].at, zero->buckets[i].counts,
                zero->buckets[i].offsets, DIST_FLOAT32, &zero->buckets[i].work);
    }
    for (int i = 0; i < zero->bucket_count && status == DIST_OK; i++)
        status = zero_wait(zero, &zero->buckets[i]);
    return status;
}

static dist_status network_sync(struct dist_zero *zero)
{
    return dist_broadcast(zero->group, zero->values, zero->elements, DIST_FLOAT32, 0);
}

static const struct zero_form zero_network = {
    .start = network_start, .finish = network_finish, .sync = network_sync};

/* ---- values, gradients and state: on one machine the values exist once ---- */

/* Depth of the tree of sums, plus one: no machine has 2^24 ranks. */
#define ZERO_TILES 25

/*
 * Allocates all memory and so selects the form. Collective; may fail on some ranks only.
 *
 *     part of rank 0   | values | gradients |
 *     part of rank 1            | gradients |
 *     part of rank 2            | gradients |
 */
static dist_status zero_memory(struct dist_zero *zero)
{
    /* Offset of the gradients if they follow the values: whole cache lines. */
    const size_t gradients_at = (zero->elements + 15) / 16 * 16,
                 bytes = gradients_at * sizeof(float);
    const bool tried = disti_log_trying(true);
    dist_status status =
        dist_shared_alloc(zero->group, zero->rank == 0 ? 2 * bytes : bytes, zero->parts);
    void *state;

    disti_log_trying(tried);
    if (status == DIST_OK) {
        zero->form = &zero_machine;
        zero->values = zero->parts[0];
        for (int r = 0; r < zero->world; r++)
            zero->peers[r] = (float *)zero->parts[r] + (r == 0 ? gradients_at : 0);
        zero->gradients = zero->peers[zero->rank];
    } else if (status == DIST_ERR_UNSUPPORTED) {
        status = dist_alloc(NULL, 2 * bytes, &zero->memory);
        if (status != DIST_OK)
            return status;
        zero->form = &zero_network;
        zero->values = zero->memory;
        zero->gradients = zero->values + gradients_at;
    }
    if (status == DIST_OK)
        status = dist_alloc(NULL, zero->owned * (size_t)zero->options.state_floats * sizeof(float),
                            &state);
    if (status == DIST_OK)
        zero->state = state;
    return status;
}

/* ---- creation and destruction ---- */

static dist_status zero_bad(const char *what)
{
    return disti_fail(DIST_ERR_INVALID_ARGUMENT, "dist_zero_create: %s", what);
}

/* Checks the parameters of a built-in optimizer, and that its state fits. */
static dist_status zero_check_optimizer(const struct dist_zero_options *options, bool is_sgd)
{
    const struct dist_zero_sgd *sgd = is_sgd ? options->step_arg : NULL;
    const struct dist_zero_adam *adam = is_sgd ? NULL : options->step_arg;
    const struct {
        const char *name;
        double value, below;
    } numbers[] = {
        {"rate", is_sgd ? sgd->rate : adam->rate, INFINITY},
        {"momentum", is_sgd ? sgd->momentum : 0.0, INFINITY},
        {"beta1", is_sgd ? 0.0 : adam->beta1, 1.0},
        {"beta2", is_sgd ? 0.0 : adam->beta2, 1.0},
        {"epsilon", is_sgd ? 0.0 : adam->epsilon, INFINITY},
        {"weight_decay", is_sgd ? sgd->weight_decay : adam->weight_decay, INFINITY},
    };
    const int needed = !is_sgd                ? DIST_ZERO_ADAM_STATE
                       : sgd->momentum != 0.0 ? DIST_ZERO_SGD_STATE
                                              : 0;

    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        if (!(numbers[i].value >= 0.0 && numbers[i].value < numbers[i].below))
            return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                              "dist_zero_create: options.step_arg: %s is %g: set it to a number "
                              "from 0 to less than %g",
                              numbers[i].name, numbers[i].value, numbers[i].below);
    if (options->state_floats < needed)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_zero_create: options.state_floats is %d, but %s needs %d: set it "
                          "to that",
                          options->state_floats,
                          is_sgd ? "dist_zero_sgd_step with momentum" : "dist_zero_adam_step",
                          needed);
    return DIST_OK;
}

/* Checks the program's options, and fills in defaults. */
static dist_status zero_options(const struct dist_zero_options *given,
                                struct dist_zero_options *options)
{
    *options = (struct dist_zero_options)DIST_ZERO_OPTIONS_INIT;
    if (!given)
        return zero_bad("options is NULL: initialise options with DIST_ZERO_OPTIONS_INIT, and set "
                        "the step");
    if (given->size < sizeof(given->size) || given->size > sizeof(*options))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_zero_create: options.size is %zu (at most %zu): initialise the "
                          "options with DIST_ZERO_OPTIONS_INIT",
                          given->size, sizeof(*options));
    memcpy(options, given, given->size);
    if (!options->step)
        return zero_bad("options.step is NULL: set it to dist_zero_sgd_step, dist_zero_adam_step "
                        "or your own function");
    if (options->state_floats < 0 || options->state_floats > DIST_ZERO_STATE_MAX)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_zero_create: options.state_floats is %d: set it to 0 to %d",
                          options->state_floats, DIST_ZERO_STATE_MAX);
    if (!(options->max_norm >= 0.0))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_zero_create: options.max_norm is %g: set it to 0 or more",
                          options->max_norm);
    if (options->dtype == DIST_FLOAT32) {
        const bool sgd = options->step == dist_zero_sgd_step;

        if (!sgd && options->step != dist_zero_adam_step)
            return DIST_OK;
        if (!options->step_arg)
            return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                              "dist_zero_create: options.step_arg is NULL: set it to a struct %s",
                              sgd ? "dist_zero_sgd" : "dist_zero_adam");
        return zero_check_optimizer(options, sgd);
    }
    return disti_fail(DIST_ERR_UNSUPPORTED,
                      "dist_zero_create: options.dtype is %s: supported for float32 only",
                      dist_dtype_string(options->dtype));
}

static dist_status zero_parameter_copy(struct zero_parameter *to,
                                       const struct dist_zero_parameter *from, int index)
{
    const struct disti_driver *driver = disti_driver_loaded();
    size_t bytes;

    if (!disti_mul(from->count, sizeof(float), &bytes) || !disti_addressable(from->values, bytes) ||
        !disti_addressable(from->gradient, bytes))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_zero_create: parameter %d: count is %zu elements of float32, which "
                          "pass the end of the address space: set count to the size of the "
                          "parameter",
                          index, from->count);
    if (from->count == 0)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_zero_create: parameter %d has no elements", index);
    if (driver && ((from->values && disti_driver_owns(driver, from->values)) ||
                   (from->gradient && disti_driver_owns(driver, from->gradient))))
        return disti_fail(
            DIST_ERR_UNSUPPORTED,
            "dist_zero_create: parameter %d is in GPU memory: only host memory is supported",
            index);
    *to = (struct zero_parameter){
        .name = disti_ddp_quote(from->name, index), .count = from->count, .source = from->gradient};
    return to->name ? DIST_OK : disti_fail(DIST_ERR_NO_MEMORY, "no memory for a parameter's name");
}

/* The local part of dist_zero_create. */
static dist_status zero_prepare(struct dist_zero *zero,
                                const struct dist_zero_parameter *parameters, int count,
                                const struct dist_zero_options *options)
{
    dist_status status = zero_options(options, &zero->options);

    if (status == DIST_OK && count < 1)
        status = disti_fail(DIST_ERR_INVALID_ARGUMENT,
                            "dist_zero_create: count is %d: list at least one parameter", count);
    if (status == DIST_OK && !parameters)
        status = zero_bad("parameters is NULL");
    if (status != DIST_OK)
        return status;
    zero->parameters = calloc((size_t)count, sizeof(*zero->parameters));
    zero->buckets = calloc((size_t)count, sizeof(*zero->buckets));
    if (!zero->parameters || !zero->buckets)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for %d parameters", count);
    zero->count = count;
    for (int i = 0; i < count && status == DIST_OK; i++)
        status = zero_parameter_copy(&zero->parameters[i], &parameters[i], i);
    if (status != DIST_OK)
        return status;
    zero->parts = calloc((size_t)zero->world, sizeof(*zero->parts));
    zero->peers = (float **)calloc((size_t)zero->world, sizeof(*zero->peers));
    zero->tiles = malloc(sizeof(float) * ZERO_TILES * ZERO_BLOCK);
    if (!zero->parts || !zero->peers || !zero->tiles)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for addresses of %d ranks", zero->world);
    return zero_layout(zero);
}

static dist_status zero_agree(const struct dist_zero *zero, dist_group *group, dist_status status)
{
    const struct dist_zero_options *options = &zero->options;
    const uint64_t settings[] = {options->first_bucket_bytes, options->bucket_bytes, options->sum,
                                 (uint64_t)options->state_floats, (uint64_t)zero->count};
    struct ddp_hashes mine = {.must_match =
                                  disti_hash_bytes(DISTI_HASH_START, settings, sizeof(settings))};
    bool differs = false;

    mine.must_match =
        disti_hash_bytes(mine.must_match, &options->max_norm, sizeof(options->max_norm));
    for (int i = 0; i < zero->count; i++)
        mine.must_match =
            disti_hash_bytes(mine.must_match, &zero->parameters[i].count, sizeof(size_t));
    return disti_ddp_agree(group, "dist_zero_create", status, mine, &differs);
}

/*
 * The collective part of dist_zero_create. The group is made before the ranks compare their lists,
 * so that a rank with wrong arguments can decline without waiting.
 */
static dist_status zero_connect(struct dist_zero *zero, dist_group *group,
                                const struct dist_zero_parameter *parameters)
{
    dist_status status = dist_dup_group(group, NULL, &zero->group);

    if (disti_ddp_is_declined(status))
        return status;
    status = zero_agree(zero, group, status);
    if (status == DIST_OK) /* agrees on the parent group, which no rank aborts */
        status = zero_agree(zero, group, zero_memory(zero));
    for (int i = 0; i < zero->count && status == DIST_OK && zero->rank == 0; i++)
        if (parameters[i].values)
            memcpy(dist_zero_values(zero, i), parameters[i].values,
                   parameters[i].count * sizeof(float));
    /*
     * Ensures that all ranks have succeeded, so that a rank which destroys its handle at once does
     * not end the group while other ranks use it.
     */
    if (status == DIST_OK)
        status = zero_agree(zero, group, zero->form->sync(zero));
    return status;
}

/*
 * Frees everything except the structure. Shared memory is freed before the group: see
 * dist_shared_free.
 */
static dist_status zero_release(struct dist_zero *zero)
{
    dist_status status;

    if (zero->form == &zero_machine)
        dist_shared_free(zero->parts[zero->rank]);
    dist_free(NULL, zero->memory);
    dist_free(NULL, zero->state);
    free(zero->parts);
    free((void *)zero->peers);
    free(zero->tiles);
    status = dist_destroy_process_group(zero->group);
    for (int i = 0; i < zero->count; i++)
        free(zero->parameters[i].name);
    free(zero->parameters);
    free(zero->buckets);
    free(zero->shares);
    return status;
}

dist_status dist_zero_create(dist_group *group, const struct dist_zero_parameter *parameters,
                             int count, const struct dist_zero_options *options, dist_zero **zero_p)
{
    struct dist_zero *zero;
    dist_status status;

    if (dist_get_world_size(group) < 1)
        return zero_bad(group ? "the group was destroyed" : "group is NULL");
    zero = calloc(1, sizeof(*zero));
    if (!zero)
        return dist_decline_dup_group(group,
                                      disti_fail(DIST_ERR_NO_MEMORY, "no memory for a dist_zero"));
    zero->rank = dist_get_rank(group);
    zero->world = dist_get_world_size(group);
    status = zero_p ? zero_prepare(zero, parameters, count, options) : zero_bad("zero_p is NULL");
    status = status == DIST_OK ? zero_connect(zero, group, parameters)
                               : dist_decline_dup_group(group, status);
    if (status != DIST_OK) {
        char text[1024];

        disti_text(text, sizeof(text), "%s", dist_last_error());
        if (zero->group)
            zero_fail(zero, status);
        zero_release(zero);
        free(zero);
        disti_fail_unlogged(text);
        return status;
    }
    zero->stats.state_bytes =
        zero->owned * (size_t)zero->options.state_floats * sizeof(*zero->state);
    zero->stats.gradient_bytes = zero->elements * sizeof(*zero->gradients);
    zero->stats.value_bytes = zero->elements * sizeof(*zero->values);
    zero->stats.sharers = zero->form == &zero_machine ? zero->world : 1;
    zero->stats.buckets = zero->bucket_count;
    *zero_p = zero;
    return DIST_OK;
}

dist_status dist_zero_destroy(dist_zero *zero)
{
    dist_status status;

    if (!zero)
        return DIST_OK;
    if (zero->destroyed)
        return zero_check(zero, "dist_zero_destroy");
    status = DIST_ERR_ABORTED;
    if (zero->failed == DIST_OK && !zero_is_in_step(zero))
        status = disti_ddp_leave(zero->group);
    if (status != DIST_OK)
        zero_fail(zero, status);
    status = zero_release(zero);
    *zero = (struct dist_zero){.destroyed = true};
    disti_ddp_keep_destroyed(zero);
    return status == DIST_ERR_ABORTED ? DIST_OK : status;
}

/* Calls between steps. */

float *dist_zero_values(const dist_zero *zero, int index)
{
    return zero && index >= 0 && index < zero->count ? zero->values + zero->parameters[index].at
                                                     : NULL;
}

float *dist_zero_gradient(const dist_zero *zero, int index)
{
    return dist_zero_values(zero, index) ? zero->gradients + zero->parameters[index].at : NULL;
}

dist_status dist_zero_clear_gradients(dist_zero *zero)
{
    dist_status status = zero_check_between(zero, "dist_zero_clear_gradients");

    if (status == DIST_OK)
        memset(zero->gradients, 0, zero->elements * sizeof(*zero->gradients));
    return status;
}

dist_status dist_zero_sync_values(dist_zero *zero)
{
    dist_status status = zero_check_between(zero, "dist_zero_sync_values");

    if (status != DIST_OK)
        return status;
    status = zero->form->sync(zero);
    return status == DIST_OK ? DIST_OK : zero_fail(zero, status);
}

uint64_t dist_zero_get_steps(const dist_zero *zero)
{
    return zero ? zero->step_count : 0;
}

dist_status dist_zero_set_steps(dist_zero *zero, uint64_t steps)
{
    dist_status status = zero_check_between(zero, "dist_zero_set_steps");

    if (status == DIST_OK && steps > INT64_MAX)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_zero_set_steps: %" PRIu64
                          " steps are too many: pass a number that dist_zero_get_steps returned",
                          steps);
    if (status == DIST_OK)
        zero->step_count = steps;
    return status;
}

dist_status dist_zero_get_stats(const dist_zero *zero, struct dist_zero_stats *stats_p)
{
    if (!zero || zero->destroyed)
        return zero_check(zero, "dist_zero_get_stats");
    if (!stats_p)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "dist_zero_get_stats: stats_p is NULL");
    if (stats_p->size < sizeof(stats_p->size) || stats_p->size > sizeof(*stats_p))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_zero_get_stats: size is %zu: set it to the sizeof of the struct "
                          "(at most %zu)",
                          stats_p->size, sizeof(*stats_p));
    memcpy((char *)stats_p + sizeof(stats_p->size),
           (const char *)&zero->stats + sizeof(zero->stats.size),
           stats_p->size - sizeof(stats_p->size));
    return DIST_OK;
}

/* The state of a whole parameter: gathered from its owners, and scattered to them. */

/* Gathers to `values`, or scatters from `from`. */
static dist_status state_move(struct dist_zero *zero, const char *call, int index, int which,
                              float *values, const float *from, bool gathers, int root)
{
    dist_status status = zero_check_between(zero, call);
    size_t *counts, *offsets;
    const struct zero_bucket *bucket;
    float *own;

    if (status != DIST_OK)
        return status;
    if (index < 0 || index >= zero->count)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s: no parameter %d: there are %d", call,
                          index, zero->count);
    if (which < 0 || which >= zero->options.state_floats)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s: no state number %d: each element has %d",
                          call, which, zero->options.state_floats);
    if (root < 0 || root >= zero->world)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s: no rank %d: there are %d", call, root,
                          zero->world);
    if (zero->rank == root && !(gathers ? values : from))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s: values is NULL at root", call);
    counts = calloc((size_t)zero->world, 2 * sizeof(*counts));
    if (!counts) {
        status = disti_fail(DIST_ERR_NO_MEMORY, "no memory for the parts of %d ranks", zero->world);
        return zero_fail(zero, status);
    }
    offsets = counts + zero->world;
    for (int r = 0; r < zero->world; r++)
        counts[r] = zero_part(zero, index, r, &offsets[r]);
    bucket = &zero->buckets[zero->parameters[index].bucket];
    own = zero->state + (size_t)which * zero->owned + bucket->owned_at;
    if (counts[zero->rank] > 0)
        own += zero->parameters[index].at + offsets[zero->rank] - zero_share_begin(zero, bucket);
    status = gathers ? dist_gather_v(zero->group, own, counts[zero->rank], values, counts, offsets,
                                     DIST_FLOAT32, root)
                     : dist_scatter_v(zero->group, from, counts, offsets, own, counts[zero->rank],
                                      DIST_FLOAT32, root);
    free(counts);
    return status == DIST_OK ? DIST_OK : zero_fail(zero, status);
}

dist_status dist_zero_gather_state(dist_zero *zero, int index, int which, float *values, int root)
{
    return state_move(zero, "dist_zero_gather_state", index, which, values, NULL, true, root);
}

dist_status dist_zero_scatter_state(dist_zero *zero, int index, int which, const float *values,
                                    int root)
{
    return state_move(zero, "dist_zero_scatter_state", index, which, NULL, values, false, root);
}

/* ---- steps ---- */

dist_status dist_zero_ready(dist_zero *zero, int index)
{
    dist_status status = zero_check(zero, "dist_zero_ready");
    struct zero_parameter *parameter;

    if (status != DIST_OK)
        return status;
    if (!dist_zero_gradient(zero, index))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_zero_ready: no parameter %d: dist_zero_create got %d", index,
                          zero->count);
    parameter = &zero->parameters[index];
    if (parameter->ready)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_zero_ready: called a second time for gradient %s in this step: "
                          "call it once, when the gradient is complete",
                          parameter->name);
    if (parameter->source)
        memcpy(zero->gradients + parameter->at, parameter->source,
               parameter->count * sizeof(*parameter->source));
    parameter->ready = true;
    zero->buckets[parameter->bucket].missing--;
    status = zero->form->start ? zero->form->start(zero) : DIST_OK;
    return status == DIST_OK ? DIST_OK : zero_fail(zero, status);
}

dist_status dist_zero_finish(dist_zero *zero)
{
    dist_status status = zero_check(zero, "dist_zero_finish");
    struct ddp_list missing = {.count = 0};

    if (status != DIST_OK)
        return status;
    zero->squares = 0.0;
    zero->scale = 1.0f;
    for (int i = 0; i < zero->count; i++)
        if (!zero->parameters[i].ready)
            disti_ddp_list_add(&missing, zero->parameters[i].name);
    status = missing.count == 0 ? zero->form->finish(zero)
                                : disti_fail(DIST_ERR_INVALID_ARGUMENT,
                                             "rank %d: dist_zero_finish: no gradient for %s: call "
                                             "dist_zero_ready for each of them",
                                             zero->rank, disti_ddp_list_end(&missing));
    if (status != DIST_OK)
        return zero_fail(zero, status);
    for (int i = 0; i < zero->count; i++)
        zero->parameters[i].ready = false;
    for (int i = 0; i < zero->bucket_count; i++)
        zero->buckets[i].missing = zero->buckets[i].last - zero->buckets[i].first + 1;
    zero->next = 0;
    zero->step_count++;
    zero->stats.steps++;
    return DIST_OK;
}
