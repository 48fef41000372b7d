/* SPDX-License-Identifier: BSD-3-Clause */
/* Maps blocks and chunks to memory, builds plans, and checks that a plan is well formed. */
#include "plan/plan.h"
#include "base/collective.h"
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

void disti_plan_free(struct disti_plan *plan)
{
    free(plan);
}

/* ---- blocks ---- */

/* The blocks that a space holds: first, first + stride, ... (`blocks` of them). */
struct plan_run {
    uint32_t first, stride, blocks;
};

/* The blocks of IN or OUT. BARRIER is treated like an all-reduce of an empty vector. */
static struct plan_run plan_run(const struct disti_plan *plan, uint8_t space)
{
    const struct disti_collective *traits = &disti_collectives[plan->collective];
    uint32_t ranks = (uint32_t)plan->ranks, rank = (uint32_t)plan->rank;
    bool in = space == DISTI_IN;
    if ((in ? traits->in_at : traits->out_at) == DISTI_AT_ROOT && plan->rank != plan->root &&
        !disti_collective_one_buffer(traits))
        return (struct plan_run){0, 1, 0};
    if ((in ? traits->in : traits->out) == DISTI_BLOCKS_OWN)
        return (struct plan_run){rank, 1, 1};
    if ((in ? traits->in : traits->out) != DISTI_BLOCKS_EACH)
        return (struct plan_run){0, 1, 1};
    if (traits->in != traits->out)
        return (struct plan_run){0, 1, ranks};
    /* ALL_TO_ALL has ranks * ranks blocks: IN holds this rank's row of them, OUT its column. */
    return in ? (struct plan_run){rank * ranks, 1, ranks} : (struct plan_run){rank, ranks, ranks};
}

uint32_t disti_plan_blocks(const struct disti_plan *plan, uint8_t space)
{
    return plan_run(plan, space).blocks;
}

uint64_t disti_plan_data_blocks(const struct disti_plan *plan)
{
    const struct disti_collective *traits = &disti_collectives[plan->collective];
    uint64_t ranks = (uint64_t)plan->ranks;
    return (traits->in == DISTI_BLOCKS_EACH ? ranks : 1) *
           (traits->out == DISTI_BLOCKS_EACH ? ranks : 1);
}

uint32_t disti_plan_data(const struct disti_plan *plan, struct disti_chunk_ref ref)
{
    struct plan_run run = plan_run(plan, ref.space);
    uint32_t block = run.first + ref.chunk / plan->chunks * run.stride;
    return block * plan->chunks + ref.chunk % plan->chunks;
}

bool disti_plan_locate(const struct disti_plan *plan, uint8_t space, uint32_t data,
                       struct disti_chunk_ref *ref_p)
{
    struct plan_run run = plan_run(plan, space);
    uint32_t after = data / plan->chunks - run.first, block = after / run.stride;
    if (block >= run.blocks || after % run.stride != 0)
        return false;
    *ref_p = (struct disti_chunk_ref){block * plan->chunks + data % plan->chunks, space};
    return true;
}

/* ---- elements ---- */

/*
 * Returns the element offset of the part-th chunk in a block of `count` elements. The first count %
 * chunks chunks are one element longer than the others.
 */
static size_t plan_part(const struct disti_plan *plan, size_t count, uint32_t part)
{
    size_t longer = count % plan->chunks;
    return part * (count / plan->chunks) + (part < longer ? part : longer);
}

/* Returns the element offset of chunk `at` in its space. */
static size_t plan_offset(const struct disti_plan *plan, const struct disti_layout *layout,
                          uint32_t at)
{
    uint32_t block = at / plan->chunks, part = at % plan->chunks;
    if (layout->counts)
        return layout->offsets[block] + plan_part(plan, layout->counts[block], part);
    return block * layout->count + plan_part(plan, layout->count, part);
}

size_t disti_chunks_extent(const struct disti_plan *plan, const struct disti_layout *layout,
                           uint32_t at, uint32_t chunks, size_t *offset_p)
{
    size_t begin = plan_offset(plan, layout, at), end;
    if (layout->counts) { /* the range is inside one block */
        uint32_t block = at / plan->chunks, part = at % plan->chunks + chunks;
        end = layout->offsets[block] + plan_part(plan, layout->counts[block], part);
    } else {
        end = plan_offset(plan, layout, at + chunks);
    }
    if (offset_p)
        *offset_p = begin;
    return end - begin;
}

size_t disti_step_elements(const struct disti_plan *plan, const struct disti_layout layouts[2],
                           const struct disti_step *step)
{
    /* If all blocks have the same size, the space does not matter. */
    struct disti_chunk_ref ref = {step->first, DISTI_IN};
    if (disti_collective_uneven(plan->collective)) {
        if (step->kind != DISTI_SEND && step->dst.space != DISTI_SCRATCH)
            ref = step->dst;
        else if (step->kind != DISTI_RECV && step->src.space != DISTI_SCRATCH)
            ref = step->src;
        else if (!disti_plan_locate(plan, DISTI_IN, step->first, &ref))
            disti_plan_locate(plan, DISTI_OUT, step->first, &ref);
    }
    return disti_chunks_extent(plan, &layouts[ref.space], ref.chunk, step->chunks, NULL);
}

size_t disti_slot_elements(const struct disti_plan *plan, const struct disti_layout layouts[2])
{
    size_t most = 0;
    for (uint8_t space = DISTI_IN; space <= DISTI_OUT; space++) {
        uint32_t blocks = disti_plan_blocks(plan, space);
        for (uint32_t b = 0; b < blocks; b++) {
            const struct disti_layout *layout = &layouts[space];
            size_t count = layout->counts ? layout->counts[b] : layout->count;
            most = count > most ? count : most;
            if (!layout->counts)
                break; /* all blocks have the same size */
        }
    }
    return most / plan->chunks + (most % plan->chunks != 0);
}

/* The builder collects the steps of an algorithm and lays them out as a plan. */

/* A step in the order in which it was appended. builder_flatten() sorts steps by lane. */
struct builder_record {
    struct disti_step step;
    uint16_t lane;
};

struct builder_array {
    SLIST_ENTRY(builder_array) next;
    uint32_t numbers[];
};

struct disti_builder {
    struct disti_plan plan; /* the members set so far */
    dist_status status;
    struct disti_step_ref *written; /* indexed by chunk of OUT: the last step that wrote it */
    struct builder_record *records;
    size_t count, capacity;
    struct disti_lane *lanes; /* `first` is set by builder_flatten() */
    size_t lane_count, lane_capacity;
    uint32_t *data; /* the chunk lists of all steps, concatenated */
    size_t data_count, data_capacity;
    SLIST_HEAD(, builder_array) arrays; /* working arrays of the algorithm */
};

/* Records the first error; later ones are ignored. */
static void builder_fail(struct disti_builder *b, dist_status status)
{
    if (b->status == DIST_OK)
        b->status = status;
}

/* Makes room for `more` items in *items, at least doubling the array when it is full. */
static bool builder_grow(struct disti_builder *b, void **items, size_t count, size_t more,
                         size_t *capacity, size_t size)
{
    if (count + more <= *capacity)
        return true;
    size_t wider = *capacity * 2 > count + more ? *capacity * 2 : count + more + 64;
    void *grown = realloc(*items, wider * size);
    if (!grown) {
        builder_fail(b, DIST_ERR_NO_MEMORY);
        return false;
    }
    *items = grown;
    *capacity = wider;
    return true;
}

void disti_build_chunks(struct disti_builder *b, uint32_t chunks)
{
    uint32_t all, out;
    bool many = __builtin_mul_overflow(disti_plan_data_blocks(&b->plan), chunks, &all);
    if (chunks == 0 || b->written || many) {
        builder_fail(b, many ? DIST_ERR_UNSUPPORTED : DIST_ERR_INTERNAL);
        return;
    }
    b->plan.chunks = chunks;
    out = disti_plan_chunks(&b->plan, DISTI_OUT);
    b->written = malloc(((size_t)out + 1) * sizeof(*b->written));
    if (!b->written) {
        builder_fail(b, DIST_ERR_NO_MEMORY);
        return;
    }
    for (uint32_t c = 0; c < out; c++)
        b->written[c] = DISTI_NOW;
}

void disti_build_scratch(struct disti_builder *b, uint32_t slots)
{
    if (slots > b->plan.scratch_chunks)
        b->plan.scratch_chunks = slots;
}

uint16_t disti_build_lane(struct disti_builder *b, uint16_t channel)
{
    if (b->lane_count >= DISTI_NO_LANE || channel >= DISTI_CHANNELS)
        builder_fail(b, DIST_ERR_UNSUPPORTED);
    if (b->status != DIST_OK || !builder_grow(b, (void **)&b->lanes, b->lane_count, 1,
                                              &b->lane_capacity, sizeof(*b->lanes)))
        return 0;
    b->lanes[b->lane_count] = (struct disti_lane){.channel = channel};
    return (uint16_t)b->lane_count++;
}

uint32_t *disti_build_array(struct disti_builder *b, size_t count)
{
    struct builder_array *array = calloc(1, sizeof(*array) + count * sizeof(uint32_t));
    if (!array) {
        builder_fail(b, DIST_ERR_NO_MEMORY);
        return NULL;
    }
    SLIST_INSERT_HEAD(&b->arrays, array, next);
    return array->numbers;
}

static struct disti_chunk_ref builder_ref(struct disti_builder *b, uint8_t space, uint32_t data)
{
    struct disti_chunk_ref ref = {0, space};
    if (b->status == DIST_OK && (!b->written || !disti_plan_locate(&b->plan, space, data, &ref)))
        builder_fail(b, DIST_ERR_INTERNAL);
    return ref;
}

struct disti_chunk_ref disti_build_in(struct disti_builder *b, uint32_t data)
{
    return builder_ref(b, DISTI_IN, data);
}

struct disti_chunk_ref disti_build_out(struct disti_builder *b, uint32_t data)
{
    return builder_ref(b, DISTI_OUT, data);
}

struct disti_step_ref disti_build_written(const struct disti_builder *b, uint32_t data)
{
    struct disti_chunk_ref ref;
    if (b->status != DIST_OK || !b->written || !disti_plan_locate(&b->plan, DISTI_OUT, data, &ref))
        return DISTI_NOW;
    return b->written[ref.chunk];
}

struct disti_chunk_ref disti_build_value(struct disti_builder *b, uint32_t data)
{
    bool fresh = disti_build_written(b, data).steps == 0;
    return fresh ? disti_build_in(b, data) : disti_build_out(b, data);
}

struct disti_step_ref disti_build_step(struct disti_builder *b, enum disti_step_kind kind,
                                       const struct disti_draft *draft)
{
    bool local = kind == DISTI_REDUCE || kind == DISTI_COPY;
    /* Steps of one lane are ordered anyway, so they need no wait. */
    bool waits = draft->after.steps && draft->after.lane != draft->lane;
    /* Members that this kind of step does not use get fixed values. */
    struct disti_step step = {.kind = (uint8_t)kind,
                              .finish = draft->finish,
                              .wait_lane = waits ? draft->after.lane : DISTI_NO_LANE,
                              .wait_step = waits ? draft->after.steps - 1 : 0,
                              .peer = local ? -1 : draft->peer,
                              .first = draft->data,
                              .chunks = draft->chunks || draft->list ? draft->chunks : 1,
                              .list = DISTI_NO_LIST,
                              .dst = draft->dst,
                              .src = draft->src};
    if (draft->list) { /* disti_plan_check() rejects an empty list */
        step.first = draft->chunks ? draft->list[0] : 0;
        if (b->data_count + draft->chunks >= DISTI_NO_LIST)
            builder_fail(b, DIST_ERR_UNSUPPORTED);
        if (b->status == DIST_OK && builder_grow(b, (void **)&b->data, b->data_count, draft->chunks,
                                                 &b->data_capacity, sizeof(*b->data))) {
            if (draft->chunks)
                memcpy(b->data + b->data_count, draft->list, draft->chunks * sizeof(*b->data));
            step.list = (uint32_t)b->data_count;
            b->data_count += draft->chunks;
        }
    }
    if (!b->written || draft->lane >= b->lane_count)
        builder_fail(b, DIST_ERR_INTERNAL);
    if (b->status != DIST_OK ||
        !builder_grow(b, (void **)&b->records, b->count, 1, &b->capacity, sizeof(*b->records)))
        return DISTI_NOW;
    b->records[b->count++] = (struct builder_record){step, draft->lane};
    struct disti_step_ref mark = {draft->lane, ++b->lanes[draft->lane].count};
    bool writes = kind != DISTI_SEND && step.dst.space == DISTI_OUT;
    uint32_t out = disti_plan_chunks(&b->plan, DISTI_OUT);
    for (uint32_t i = 0; writes && i < step.chunks; i++)
        if (step.dst.chunk + i < out) /* disti_plan_check() rejects chunks out of range */
            b->written[step.dst.chunk + i] = mark;
    return mark;
}

/* Lays out the plan in one allocation: [plan][lanes][steps][lists]. Returns NULL without memory. */
static struct disti_plan *builder_flatten(const struct disti_builder *b)
{
    size_t lanes_bytes = b->lane_count * sizeof(struct disti_lane);
    size_t steps_bytes = b->count * sizeof(struct disti_step);
    size_t data_bytes = b->data_count * sizeof(uint32_t);
    struct disti_plan *plan = malloc(sizeof(*plan) + lanes_bytes + steps_bytes + data_bytes);
    if (!plan)
        return NULL;
    struct disti_lane *lanes = (struct disti_lane *)(plan + 1);
    struct disti_step *steps = (struct disti_step *)(lanes + b->lane_count);
    uint32_t *data = (uint32_t *)(steps + b->count);
    *plan = b->plan;
    plan->lane_count = (uint32_t)b->lane_count;
    plan->step_count = (uint32_t)b->count;
    plan->data_count = (uint32_t)b->data_count;
    plan->lanes = lanes;
    plan->steps = steps;
    plan->data = data;
    if (b->data_count)
        memcpy(data, b->data, data_bytes);
    uint32_t first = 0;
    for (size_t l = 0; l < b->lane_count; l++) {
        lanes[l] = (struct disti_lane){.first = first, .channel = b->lanes[l].channel};
        first += b->lanes[l].count;
    }
    for (size_t i = 0; i < b->count; i++) {
        struct disti_lane *lane = &lanes[b->records[i].lane];
        steps[lane->first + lane->count++] = b->records[i].step;
    }
    return plan;
}

/* Turns the collected steps into a plan and checks it. Algorithms are part of the library, so their
 * plans are checked once, here, and trusted afterwards. */
static dist_status builder_finish(struct disti_builder *b, const struct disti_algorithm *algorithm,
                                  struct disti_plan **plan_p)
{
    if (b->status == DIST_ERR_NO_MEMORY)
        return disti_fail(b->status, "no memory for the plan of %s", algorithm->name);
    if (b->status == DIST_ERR_UNSUPPORTED)
        return disti_fail(b->status,
                          "%d ranks are too many for algorithm %s of %s: choose another with "
                          "DIST_ALGO",
                          b->plan.ranks, algorithm->name,
                          dist_collective_string(algorithm->collective));
    if (b->status != DIST_OK || !b->written || b->count > UINT32_MAX)
        return disti_fail(DIST_ERR_INTERNAL,
                          "algorithm %s wrote a malformed plan for rank %d of %d", algorithm->name,
                          b->plan.rank, b->plan.ranks);
    struct disti_plan *plan = builder_flatten(b);
    if (!plan)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for the plan of %s", algorithm->name);
    char text[256] = "no memory to check the plan";
    dist_status status = disti_plan_check(plan, text, sizeof(text));
    if (status != DIST_OK) {
        disti_plan_free(plan);
        return disti_fail(status, "the plan of algorithm %s: %s", algorithm->name, text);
    }
    *plan_p = plan;
    return DIST_OK;
}

dist_status disti_plan_write(const struct disti_algorithm *algorithm,
                             const struct disti_shape *shape, struct disti_plan **plan_p)
{
    if (shape->ranks < 1 || shape->rank < 0 || shape->rank >= shape->ranks || shape->root < 0 ||
        shape->root >= shape->ranks || shape->segments < 1 || shape->segments > 1u << 16 ||
        algorithm->collective != shape->collective)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "invalid shape for a plan of %s: rank %d of %d, root %d, %u segments",
                          algorithm->name, shape->rank, shape->ranks, shape->root, shape->segments);
    struct disti_builder b = {.plan = {.collective = shape->collective,
                                       .algorithm = algorithm->name,
                                       .ranks = shape->ranks,
                                       .rank = shape->rank,
                                       .root = shape->root}};
    if (shape->ranks > 1) {
        algorithm->write(shape, &b);
    } else { /* a single rank's result is its input */
        disti_build_chunks(&b, 1);
        if (shape->collective != DIST_COLL_BROADCAST && shape->collective != DIST_COLL_BARRIER)
            disti_build_copy(&b, .lane = disti_build_lane(&b, 0), .dst = disti_out(0),
                             .src = disti_in(0));
    }
    dist_status status = builder_finish(&b, algorithm, plan_p);
    while (!SLIST_EMPTY(&b.arrays)) {
        struct builder_array *array = SLIST_FIRST(&b.arrays);
        SLIST_REMOVE_HEAD(&b.arrays, next);
        free(array);
    }
    free(b.written);
    free(b.records);
    free(b.lanes);
    free(b.data);
    return status;
}

/* ---- checks that a plan is well formed ---- */

/* The position in the plan that is being checked, and where the error message goes. */
struct check {
    const struct disti_plan *plan;
    uint32_t lane, step;
    char *text;
    size_t size;
};

__attribute__((format(printf, 2, 3))) static bool check_fault(const struct check *check,
                                                              const char *format, ...)
{
    char what[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    snprintf(check->text, check->size, "rank %d, lane %u, step %u: %s", check->plan->rank,
             check->lane, check->step, what);
    return false;
}

/*
 * True if all chunks have the same size, so that several chunks fill scratch slots without a gap.
 */
static bool check_equal(const struct disti_plan *plan)
{
    return plan->chunks == 1 && !disti_collective_uneven(plan->collective);
}

/*
 * The distance between the chunks of a step that need to be checked. Consecutive chunks of a space
 * are consecutive in the data too, except in OUT of an all-to-all, so elsewhere it is enough to
 * check the first and the last chunk of a range.
 */
static uint32_t check_stride(const struct disti_plan *plan, const struct disti_step *step)
{
    bool turned =
        plan->collective == DIST_COLL_ALL_TO_ALL || plan->collective == DIST_COLL_ALL_TO_ALL_V;
    return turned || step->list != DISTI_NO_LIST || step->chunks < 2 ? 1 : step->chunks - 1;
}

/* True if the i-th chunk from `ref` on holds the step's i-th chunk of data, for all i. */
static bool check_data(const struct check *check, const struct disti_step *step,
                       struct disti_chunk_ref ref, const char *name)
{
    uint32_t stride = check_stride(check->plan, step);
    for (uint32_t i = 0; i < step->chunks; i += stride) {
        struct disti_chunk_ref at = {ref.chunk + i, ref.space};
        uint32_t holds = disti_plan_data(check->plan, at);
        uint32_t data = disti_step_data(check->plan, step, i);
        if (holds != data)
            return check_fault(check, "%s holds chunk %u, the step's data is chunk %u", name, holds,
                               data);
    }
    return true;
}

/* True if the step's chunks from `ref` on are inside the space, without a gap, and hold its
 * data. */
static bool check_ref(const struct check *check, const struct disti_step *step,
                      struct disti_chunk_ref ref, const char *name)
{
    const struct disti_plan *plan = check->plan;
    if (ref.space > DISTI_SCRATCH)
        return check_fault(check, "%s is in unknown space %d", name, ref.space);
    bool scratch = ref.space == DISTI_SCRATCH;
    uint64_t end = (uint64_t)ref.chunk + step->chunks;
    uint64_t limit = scratch ? plan->scratch_chunks : disti_plan_chunks(plan, ref.space);
    if (end > limit)
        return check_fault(check, "%s ends at chunk %llu, but its space has %llu chunks", name,
                           (unsigned long long)end, (unsigned long long)limit);
    if (scratch && step->chunks > 1 && !check_equal(plan))
        return check_fault(check, "%s is several slots of scratch, whose chunks may differ in size",
                           name);
    if (!scratch && disti_collective_uneven(plan->collective) &&
        ref.chunk / plan->chunks != (end - 1) / plan->chunks)
        return check_fault(check, "%s crosses the end of a block, but blocks may not be contiguous",
                           name);
    return scratch || check_data(check, step, ref, name);
}

/*
 * True if the step's chunks of data exist. A list is accepted only if all chunks have the same
 * size.
 */
static bool check_range(const struct check *check, const struct disti_step *step)
{
    const struct disti_plan *plan = check->plan;
    uint64_t end = (uint64_t)step->list + step->chunks;
    if (step->list != DISTI_NO_LIST && (!check_equal(plan) || end > plan->data_count))
        return check_fault(check, "its data is a list of chunks that %s",
                           check_equal(plan) ? "does not exist" : "may differ in size");
    for (uint32_t i = 0; i < step->chunks; i += check_stride(plan, step))
        if (disti_step_data(plan, step, i) >= disti_plan_data_chunks(plan))
            return check_fault(check, "chunk %u of its data does not exist",
                               disti_step_data(plan, step, i));
    return step->chunks > 0 || check_fault(check, "it has no data");
}

static bool check_step(const struct check *check, const struct disti_step *step)
{
    const struct disti_plan *plan = check->plan;
    bool reads = step->kind != DISTI_RECV, writes = step->kind != DISTI_SEND;
    struct disti_chunk_ref ref;
    if (step->kind > DISTI_COPY)
        return check_fault(check, "has kind %d, which does not exist", step->kind);
    if (step->finish && step->kind != DISTI_RECV_REDUCE && step->kind != DISTI_REDUCE)
        return check_fault(check, "finishes, but reduces nothing");
    if (disti_step_has_peer(step) &&
        (step->peer < 0 || step->peer >= plan->ranks || step->peer == plan->rank))
        return check_fault(check, "its peer is rank %d of %d", step->peer, plan->ranks);
    if (writes && step->dst.space == DISTI_IN)
        return check_fault(check, "writes the input");
    if (!check_range(check, step))
        return false;
    /* In a _V form a rank knows only the sizes of the blocks that IN or OUT holds. */
    if (disti_collective_uneven(plan->collective) &&
        !disti_plan_locate(plan, DISTI_IN, step->first, &ref) &&
        !disti_plan_locate(plan, DISTI_OUT, step->first, &ref))
        return check_fault(check, "this rank does not know the size of chunk %u", step->first);
    if ((reads && !check_ref(check, step, step->src, "its source")) ||
        (writes && !check_ref(check, step, step->dst, "its destination")))
        return false;
    if (step->wait_lane != DISTI_NO_LANE && (step->wait_lane >= plan->lane_count ||
                                             step->wait_step >= plan->lanes[step->wait_lane].count))
        return check_fault(check, "waits for lane %u, step %u, which does not exist",
                           step->wait_lane, step->wait_step);
    return true;
}

/*
 * An end of a message. There is at least one entry for each lane, channel, peer and direction that
 * has messages.
 */
struct check_end {
    uint64_t key; /* channel, peer, direction */
    uint32_t lane, step;
};

static int check_compare(const void *left, const void *right)
{
    const struct check_end *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->lane != b->lane ? (a->lane < b->lane ? -1 : 1)
                              : (a->step > b->step) - (a->step < b->step);
}

/* Records the end of a message. Most lanes alternate between a few peers, so comparing with the
 * last 4 entries avoids most duplicates. */
static void check_note(const struct check *check, const struct disti_step *step,
                       struct check_end *ends, uint32_t *count)
{
    uint64_t channel = check->plan->lanes[check->lane].channel, sends = step->kind == DISTI_SEND;
    struct check_end end = {(channel << 32 | (uint32_t)step->peer) << 1 | sends, check->lane,
                            check->step};
    for (uint32_t back = 1; back <= 4 && back <= *count; back++)
        if (ends[*count - back].key == end.key && ends[*count - back].lane == end.lane)
            return;
    ends[(*count)++] = end;
}

static bool check_lanes(struct check *check, struct check_end *ends, uint32_t *count)
{
    const struct disti_plan *plan = check->plan;
    for (check->lane = 0; check->lane < plan->lane_count; check->lane++) {
        const struct disti_lane *lane = &plan->lanes[check->lane];
        for (check->step = 0; check->step < lane->count; check->step++) {
            const struct disti_step *step = &plan->steps[lane->first + check->step];
            if (!check_step(check, step))
                return false;
            if (disti_step_has_peer(step))
                check_note(check, step, ends, count);
        }
    }
    return true;
}

/* Rejects plans in which two lanes of one channel send to one peer or receive from one peer. */
static bool check_ends(struct check *check, struct check_end *ends, uint32_t count)
{
    if (count > 0)
        qsort(ends, count, sizeof(*ends), check_compare);
    for (uint32_t i = 1; i < count; i++) {
        if (ends[i].key != ends[i - 1].key || ends[i].lane == ends[i - 1].lane)
            continue;
        check->lane = ends[i].lane;
        check->step = ends[i].step;
        return check_fault(check, "lane %u also has messages %s rank %u on channel %u",
                           ends[i - 1].lane, ends[i].key & 1 ? "to" : "from",
                           (uint32_t)(ends[i].key >> 1), (uint32_t)(ends[i].key >> 33));
    }
    return true;
}

/* True if the lanes follow each other in steps[] without a gap. */
static bool check_layout(const struct check *check)
{
    const struct disti_plan *plan = check->plan;
    uint64_t end = 0;
    for (uint32_t l = 0; l < plan->lane_count; l++) {
        if (plan->lanes[l].first != end)
            return check_fault(check, "lane %u begins at step %u of the plan, not at %llu", l,
                               plan->lanes[l].first, (unsigned long long)end);
        end += plan->lanes[l].count;
    }
    if (end != plan->step_count)
        return check_fault(check, "the lanes have %llu steps, the plan %u", (unsigned long long)end,
                           plan->step_count);
    return true;
}

dist_status disti_plan_check(const struct disti_plan *plan, char *text, size_t size)
{
    struct check check = {.plan = plan, .text = text, .size = size};
    if (!check_layout(&check))
        return DIST_ERR_INTERNAL;
    uint32_t count = 0;
    struct check_end *ends = malloc(((size_t)plan->step_count + 1) * sizeof(*ends));
    if (!ends)
        return DIST_ERR_NO_MEMORY;
    bool sound = check_lanes(&check, ends, &count) && check_ends(&check, ends, count);
    free(ends);
    return sound ? DIST_OK : DIST_ERR_INTERNAL;
}
