/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases of the battery: test data, expected results, buffers, and the tested operations. */
#include "tools/common/gpu.h"
#include "tools/common/number.h"
#include "tools/selftest/battery.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Number of different values in a row of floats. */
#define DATA_FLOATS 2048

static uint64_t data_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

bool data_fits(dist_dtype dtype, dist_op op)
{
    bool bits = op == DIST_BAND || op == DIST_BOR || op == DIST_BXOR;

    if (dtype == DIST_BOOL && op == DIST_AVG)
        return false;
    if (op == DIST_PREMUL_SUM)
        return number_is_float(dtype);
    return !bits || !number_is_float(dtype);
}

/* ---- rows ---- */

/* Returns the k-th of DATA_FLOATS values. They are exact in float16, but not always in bfloat16. */
static double data_value(dist_op op, unsigned k)
{
    if (op ==
        DIST_PROD) /* near 1, so that the product over 8 ranks does not underflow or overflow */
        return 0.75 + (double)(k % 8) / 16;
    return ((double)k - DATA_FLOATS / 2.0) / 16;
}

/* Returns the bytes of element i of the rank's row as a little-endian integer. */
static uint64_t data_bits(const struct data *d, int rank, size_t i)
{
    uint64_t mixed = data_mix(data_mix(d->seed + (uint64_t)rank * 0x10001) + i);
    size_t size = dist_dtype_size(d->dtype);

    if (number_is_float(d->dtype))
        return number_bits(d->dtype, data_value(d->op, (unsigned)(mixed % DATA_FLOATS)));
    if (d->dtype == DIST_BOOL)
        return mixed % 8 ? 1 + (mixed >> 8) % 255
                         : 0; /* mostly true, so that an AND of 8 ranks is sometimes true */
    return size == 8 ? mixed : mixed & ((UINT64_C(1) << 8 * size) - 1);
}

void data_fill(const struct data *d, int rank, size_t first, size_t count, void *memory)
{
    size_t size = dist_dtype_size(d->dtype);

    for (size_t i = 0; i < count; i++) {
        uint64_t bits = data_bits(d, rank, first + i);

        memcpy((char *)memory + i * size, &bits, size);
    }
}

/* ---- operations that the battery creates ---- */

double data_factor(int rank)
{
    return 0.75 - 0.5 * (rank % 3);
}

void data_user(void *arg, void *dst, const void *a, const void *b, size_t count, dist_dtype dtype)
{
    const unsigned char *left = a, *right = b;
    unsigned char *to = dst;

    (void)arg;
    for (size_t i = 0; i < count * dist_dtype_size(dtype); i++)
        to[i] = (unsigned char)(left[i] + right[i]);
}

/* Expected results of reductions, computed rank by rank in wider types than the library uses. */

static bool expect_signed(dist_dtype dtype)
{
    return dtype == DIST_INT8 || dtype == DIST_INT32 || dtype == DIST_INT64;
}

/* Truncates a number to the size of the type, and sign- or zero-extends it to 64 bits. */
static uint64_t expect_wrap(dist_dtype dtype, uint64_t value)
{
    unsigned spare = 64 - 8 * (unsigned)dist_dtype_size(dtype);

    if (expect_signed(dtype))
        return (uint64_t)((int64_t)(value << spare) >> spare);
    return value << spare >> spare;
}

static uint64_t expect_integer_step(dist_dtype dtype, dist_op op, uint64_t a, uint64_t b)
{
    bool less = expect_signed(dtype) ? (int64_t)a < (int64_t)b : a < b;

    switch (op) {
    case DIST_PROD:
        return a * b;
    case DIST_MIN:
        return less ? a : b;
    case DIST_MAX:
        return less ? b : a;
    case DIST_BAND:
        return a & b;
    case DIST_BOR:
        return a | b;
    case DIST_BXOR:
        return a ^ b;
    default:
        return a + b;
    }
}

static uint64_t expect_integer(const struct data *d, int ranks, size_t i)
{
    uint64_t result = expect_wrap(d->dtype, data_bits(d, 0, i));

    for (int r = 1; r < ranks; r++)
        result =
            expect_integer_step(d->dtype, d->op, result, expect_wrap(d->dtype, data_bits(d, r, i)));
    result = expect_wrap(d->dtype, result);
    if (d->op != DIST_AVG)
        return result;
    if (expect_signed(d->dtype))
        return (uint64_t)((int64_t)result / ranks);
    return result / (uint64_t)ranks;
}

/* Any value but 0 is true; results are 0 or 1. SUM and MAX mean OR; PROD and MIN mean AND. */
static uint64_t expect_bool(const struct data *d, int ranks, size_t i)
{
    uint64_t truths = 0;

    for (int r = 0; r < ranks; r++)
        truths += data_bits(d, r, i) != 0;
    if (d->op == DIST_BXOR)
        return truths % 2;
    if (d->op == DIST_SUM || d->op == DIST_MAX || d->op == DIST_BOR)
        return truths > 0;
    return truths == (uint64_t)ranks;
}

/* Returns the expected value. The tolerance is half a unit in the last place of the sum (PROD: the
 * product) of the magnitudes for each of `ranks` + 1 roundings. */
static double expect_float(const struct data *d, int ranks, size_t i, double *tolerance_p)
{
    double result = 0, size = 0;

    for (int r = 0; r < ranks; r++) {
        double value = number_of(d->dtype, data_bits(d, r, i));

        if (d->op == DIST_PREMUL_SUM)
            value *= data_factor(r);
        result = r == 0 ? value
                        : (d->op == DIST_PROD  ? result * value
                           : d->op == DIST_MIN ? fmin(result, value)
                           : d->op == DIST_MAX ? fmax(result, value)
                                               : result + value);
        if (d->op == DIST_PROD)
            size = fmax(size, 1) * fmax(fabs(value), 1);
        else
            size += fabs(value);
    }
    *tolerance_p = ldexp(size, -1 - number_mantissa(d->dtype)) * (ranks + 1);
    if (d->op == DIST_MIN || d->op == DIST_MAX)
        *tolerance_p = 0;
    if (d->op != DIST_AVG)
        return result;
    *tolerance_p /= ranks;
    return result / ranks;
}

bool data_reduced(const struct data *d, int ranks, size_t i, const void *found, double *expected_p,
                  double *found_p)
{
    uint64_t bits = 0, expected;
    double tolerance;

    memcpy(&bits, found, dist_dtype_size(d->dtype));
    if (number_is_float(d->dtype) && d->op != DIST_USER) {
        *expected_p = expect_float(d, ranks, i, &tolerance);
        *found_p = number_of(d->dtype, bits);
        return fabs(*expected_p - *found_p) <= tolerance; /* false for a NaN */
    }
    if (d->op == DIST_USER) {
        /* A bytewise sum, as data_user computes it. */
        uint64_t result = 0;

        for (unsigned byte = 0; byte < dist_dtype_size(d->dtype); byte++) {
            uint64_t sum = 0;

            for (int r = 0; r < ranks; r++)
                sum += data_bits(d, r, i) >> 8 * byte & 0xff;
            result |= (sum & 0xff) << 8 * byte;
        }
        expected = result;
    } else if (d->dtype == DIST_BOOL)
        expected = expect_bool(d, ranks, i);
    else
        expected = expect_integer(d, ranks, i);
    if (d->op != DIST_USER)
        bits = expect_wrap(d->dtype, bits);
    *expected_p = (double)(int64_t)expected;
    *found_p = (double)(int64_t)bits;
    return expected == bits;
}

/* Cases: setting up the buffers, and checking the result and that nothing else has changed. */

#define GUARD_BYTES 64
#define GUARD 0xa5

/* ---- memory ---- */

void *battery_alloc(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);

    if (!memory) {
        fprintf(stderr, "out of memory for %zu x %zu bytes\n", count, size);
        exit(1);
    }
    return memory;
}

static size_t case_element(const struct test_case *c)
{
    return dist_dtype_size(c->data.dtype);
}

/* Returns the kind of memory of a buffer. With MEMORY_ANY it varies with the case, the rank and the
 * buffer. */
static enum battery_memory case_memory_type(const struct test_case *c, const struct buffer *buffer)
{
    uint64_t turn = c->data.seed * 5 + (uint64_t)c->b->rank * 3 + (buffer == &c->in);

    if (c->b->memory != MEMORY_ANY)
        return c->b->memory;
    if (gpu_stream() && turn % 3 == 0)
        return MEMORY_DEVICE;
    return turn / 2 % 2 ? MEMORY_SHARED : MEMORY_ORDINARY;
}

static void *case_memory(struct test_case *c, struct buffer *buffer, size_t bytes)
{
    void *memory = NULL;

    buffer->from = case_memory_type(c, buffer);
    if (buffer->from == MEMORY_ORDINARY)
        return battery_alloc(bytes, 1);
    if (buffer->from == MEMORY_DEVICE)
        memory = gpu_alloc(bytes);
    else
        battery_ok(c->b, dist_alloc(c->b->group, bytes, &memory), "alloc");
    if (!memory) {
        fprintf(stderr, "cannot allocate %zu bytes of the requested kind of memory\n", bytes);
        exit(1);
    }
    return memory;
}

/* Allocates a buffer between guard bytes, aligned only to the size of an element. */
static void case_buffer(struct test_case *c, struct buffer *buffer, size_t count)
{
    size_t bytes = count * case_element(c) + 3 * GUARD_BYTES;

    buffer->bytes = count * case_element(c);
    buffer->memory = case_memory(c, buffer, bytes);
    buffer->image = gpu_owns(buffer->memory) ? battery_alloc(bytes, 1) : buffer->memory;
    memset(buffer->image, GUARD, bytes);
    buffer->data = buffer->memory + GUARD_BYTES + case_element(c);
}

/* Copies device memory to its image (`out`), or the image to device memory. */
static void case_copy(struct test_case *c, const struct buffer *buffer, bool out)
{
    size_t bytes = buffer->bytes + 3 * GUARD_BYTES;

    if (buffer->image == buffer->memory)
        return;
    c->b->checks++;
    if (!(out ? gpu_get(buffer->image, buffer->memory, bytes)
              : gpu_put(buffer->memory, buffer->image, bytes)))
        battery_fault(c->b, "%s: the driver cannot copy its memory", case_name(c));
}

static void case_in(struct test_case *c, size_t count)
{
    case_buffer(c, &c->in, count);
    c->input = c->in.data;
}

static void case_out(struct test_case *c, size_t count)
{
    case_buffer(c, &c->out, count);
    c->output = c->out.data;
}

static void *case_at(const struct test_case *c, const struct buffer *buffer, size_t element)
{
    return buffer->data + element * case_element(c);
}

void *case_image(const struct test_case *c, const struct buffer *buffer, size_t element)
{
    return buffer->image + (buffer->data - buffer->memory) + element * case_element(c);
}

static void case_fill(struct test_case *c, struct buffer *to, size_t at, size_t first, size_t count)
{
    data_fill(&c->data, c->b->rank, first, count, case_image(c, to, at));
}

static void case_expect(struct test_case *c, size_t at, size_t count, int source_rank, size_t first)
{
    const struct block block = {
        .at = at, .count = count, .source_rank = source_rank, .first = first};
    size_t n = (size_t)c->block_count + 1;
    struct block *blocks = battery_alloc(n, sizeof(*blocks));

    if (c->blocks)
        memcpy(blocks, c->blocks, (n - 1) * sizeof(*blocks));
    blocks[n - 1] = block;
    free(c->blocks);
    c->blocks = blocks;
    c->block_count++;
}

/* ---- layouts ---- */

static size_t case_block_count(const struct test_case *c, int from, int to)
{
    static const int parts[] = {0, 4, 1, 3}; /* quarters of count */

    if (c->layout == LAYOUT_EVEN)
        return c->count;
    return c->count * (size_t)parts[(from * 3 + to * 5 + (int)(c->data.seed % 7)) % 4] / 4;
}

/* True if the layout needs offsets. Without them blocks are contiguous. */
static bool case_has_offsets(const struct test_case *c)
{
    return c->layout == LAYOUT_GAPS || c->layout == LAYOUT_WOVEN;
}

/*
 * Sets the offsets of the blocks and returns the total number of elements. LAYOUT_GAPS: the blocks
 * of the odd ranks in descending order, then those of the even ranks, with gaps of 1 to 3 elements.
 * LAYOUT_WOVEN: the same order, with `count` free elements before each block.
 */
static size_t case_layout(struct test_case *c, const size_t *counts, size_t *offsets)
{
    int ranks = c->b->ranks;
    size_t end = 0;

    for (int i = 0; i < ranks; i++) {
        int odd = ranks / 2, r = i;

        if (case_has_offsets(c))
            r = i < odd ? 2 * (odd - i) - 1 : 2 * (i - odd);
        if (c->layout == LAYOUT_GAPS)
            end += 1 + (size_t)(i % 3);
        if (c->layout == LAYOUT_WOVEN)
            end = (2 * (size_t)i + 1) * c->count;
        offsets[r] = end;
        end += counts[r];
    }
    if (c->layout == LAYOUT_WOVEN)
        return 2 * (size_t)ranks * c->count;
    return c->layout == LAYOUT_GAPS ? end + 2 : end;
}

/* Creates counts and offsets with one block for each rank. Returns the total number of elements. */
static size_t case_blocks(struct test_case *c, size_t **counts_p, size_t **offsets_p)
{
    size_t ranks = (size_t)c->b->ranks;

    *counts_p = battery_alloc(ranks, sizeof(**counts_p));
    *offsets_p = battery_alloc(ranks, sizeof(**offsets_p));
    for (int r = 0; r < c->b->ranks; r++)
        (*counts_p)[r] = case_block_count(c, r, 0);
    return case_layout(c, *counts_p, *offsets_p);
}

/* ---- creating and freeing cases ---- */

static void case_save(struct test_case *c, struct buffer *buffer)
{
    size_t bytes = buffer->bytes + 3 * GUARD_BYTES;

    if (!buffer->memory)
        return;
    buffer->before = battery_alloc(bytes, 1);
    memcpy(buffer->before, buffer->image, bytes);
    case_copy(c, buffer, false);
}

/* Returns an address that a program may pass for an empty buffer. Address 1 is Open MPI's
 * MPI_IN_PLACE, and the address of Rust's empty byte slices. */
static void *case_nowhere(const struct test_case *c, void *own, const void *other)
{
    switch ((c->data.seed * 3 + (uint64_t)c->b->rank) % 4) {
    case 0:
        return NULL;
    case 1:
        return (void *)(uintptr_t)other;
    case 2:
        return (void *)(uintptr_t)1;
    default:
        return own;
    }
}

struct test_case *case_new(struct battery *b, const struct operation *operation,
                           const struct variant *variant)
{
    struct test_case *c = battery_alloc(1, sizeof(*c));

    c->b = b;
    c->operation = operation;
    c->data = (struct data){.seed = ++b->seed, .dtype = variant->dtype, .op = variant->op};
    c->count = variant->count;
    c->root = variant->root;
    c->layout = variant->layout;
    c->in_place = !b->apart && (variant->place == PLACE_IN ||
                                (variant->place == PLACE_IN_ON_ODD_RANKS && b->rank % 2));
    c->tag = b->lacks & DIST_LACKS_TAGS ? 0 : (int)(b->seed % 1000);
    if (operation->shape)
        operation->shape(c);
    if (c->in.memory && !c->in.bytes)
        c->input = case_nowhere(c, c->in.data, c->output);
    if (c->out.memory && !c->out.bytes)
        c->output = case_nowhere(c, c->out.data, c->input);
    if (!c->works_needed)
        c->works_needed = 1;
    c->works = battery_alloc((size_t)c->works_needed, sizeof(*c->works));
    case_save(c, &c->in);
    case_save(c, &c->out);
    return c;
}

static void case_free_buffer(struct test_case *c, struct buffer *buffer)
{
    if (buffer->image != buffer->memory)
        free(buffer->image);
    if (buffer->from == MEMORY_SHARED)
        battery_ok(c->b, dist_free(c->b->group, buffer->memory), "free");
    else if (buffer->from == MEMORY_DEVICE)
        gpu_free(buffer->memory);
    else
        free(buffer->memory);
    free(buffer->before);
}

void case_free(struct test_case *c)
{
    case_free_buffer(c, &c->in);
    case_free_buffer(c, &c->out);
    free(c->in_counts);
    free(c->in_offsets);
    free(c->out_counts);
    free(c->out_offsets);
    free(c->blocks);
    free(c->works);
    free(c->sources);
    free(c);
}

const char *const battery_modes[] = {"blocking", "async", "flood", "group", "all"};

const char *case_name(const struct test_case *c)
{
    static const char *const layouts[] = {"even", "uneven", "gaps", "woven"};
    static char name[160];
    int n =
        snprintf(name, sizeof(name), "%s %s", c->operation->name, dist_dtype_string(c->data.dtype));

    if (dist_collective_reduces(c->operation->collective))
        n += snprintf(name + n, sizeof(name) - (size_t)n, " %s", dist_op_string(c->data.op));
    n += snprintf(name + n, sizeof(name) - (size_t)n, ", count %zu", c->count);
    if (c->operation->flags & ROOTED)
        n += snprintf(name + n, sizeof(name) - (size_t)n, ", root %d", c->root);
    if (c->operation->flags & LAYOUTS)
        n += snprintf(name + n, sizeof(name) - (size_t)n, ", %s", layouts[c->layout]);
    snprintf(name + n, sizeof(name) - (size_t)n, ", %s, %s", c->in_place ? "in place" : "apart",
             battery_modes[c->b->mode]);
    return name;
}

/* ---- the check ---- */

/*
 * Returns the next element to check after element i. In short blocks all elements are checked, in
 * long blocks both ends and a sample.
 */
static size_t case_next(size_t i, size_t count)
{
    if (count <= 4096 || i < 64 || i + 64 >= count)
        return i + 1;
    return i + 1 + (i * 2654435761u) % 97;
}

/* Returns true if the element is right; otherwise adds a fault. */
static bool case_check_element(struct test_case *c, const struct block *block, size_t i)
{
    const void *found = case_image(c, &c->out, block->at + i);
    double expected, is;
    uint64_t bits = 0, row;

    if (block->source_rank == REDUCED) {
        if (data_reduced(&c->data, c->b->ranks, block->first + i, found, &expected, &is))
            return true;
        battery_fault(c->b, "%s: element %zu is %.9g, should be %.9g", case_name(c), block->at + i,
                      is, expected);
        return false;
    }
    memcpy(&bits, found, case_element(c));
    row = data_bits(&c->data, block->source_rank, block->first + i);
    if (bits == row)
        return true;
    battery_fault(c->b, "%s: element %zu is 0x%llx, should be 0x%llx, rank %d's element %zu",
                  case_name(c), block->at + i, (unsigned long long)bits, (unsigned long long)row,
                  block->source_rank, block->first + i);
    return false;
}

static void case_check_block(struct test_case *c, const struct block *block)
{
    size_t offset = (size_t)((unsigned char *)case_image(c, &c->out, block->at) - c->out.image);

    c->b->checks++;
    for (size_t i = 0; i < block->count; i = case_next(i, block->count)) {
        if (!case_check_element(c, block, i))
            break;
    }
    /* Exclude the block from the later check that no other memory has changed. */
    memcpy(c->out.before + offset, c->out.image + offset, block->count * case_element(c));
}

static void case_check_same(struct test_case *c, const struct buffer *buffer, const char *what)
{
    size_t bytes = buffer->bytes + 3 * GUARD_BYTES, i = 0;

    if (!buffer->memory)
        return;
    c->b->checks++;
    if (memcmp(buffer->image, buffer->before, bytes) == 0)
        return;
    while (buffer->image[i] == buffer->before[i])
        i++;
    battery_fault(c->b, "%s: %s at byte %td of %zu", case_name(c), what,
                  (ptrdiff_t)i - (buffer->data - buffer->memory), buffer->bytes);
}

static void case_check_outside(struct test_case *c)
{
    case_check_same(c, &c->in, "changed its input");
    case_check_same(c, &c->out, "wrote outside its result");
}

void case_check_unchanged(struct test_case *c)
{
    case_copy(c, &c->in, true);
    case_copy(c, &c->out, true);
    case_check_outside(c);
}

void case_check(struct test_case *c)
{
    case_copy(c, &c->in, true);
    case_copy(c, &c->out, true);
    if (c->operation->check)
        c->operation->check(c);
    for (int i = 0; i < c->block_count; i++)
        case_check_block(c, &c->blocks[i]);
    case_check_outside(c);
}

/* Collectives that copy: broadcast, all_gather, gather. */

/* Makes the blocking call of that name, or its _async form if `works` is set. */
#define CALL(name, ...)                                                                            \
    (works ? dist_##name##_async(c->b->group, __VA_ARGS__, works)                                  \
           : dist_##name(c->b->group, __VA_ARGS__))

/* ---- broadcast ---- */

static void broadcast_shape(struct test_case *c)
{
    case_out(c, c->count);
    if (c->root == c->b->rank)
        case_fill(c, &c->out, 0, 0, c->count);
    case_expect(c, 0, c->count, c->root, 0);
}

static dist_status broadcast_call(struct test_case *c, dist_work **works)
{
    return CALL(broadcast, c->output, c->count, c->data.dtype, c->root);
}

/* ---- all_gather and gather ---- */

/* True if the rank passes an output buffer. A rank without a result may pass NULL, its input, or
 * memory that must not change: all are tested. */
static bool gather_passes(const struct test_case *c)
{
    bool has_result = !(c->operation->flags & ROOTED) || c->root == c->b->rank;

    return has_result || c->data.seed % 2;
}

static void gather_shape(struct test_case *c)
{
    int ranks = c->b->ranks, rank = c->b->rank;
    bool has_result = !(c->operation->flags & ROOTED) || c->root == rank;
    size_t total;

    total = case_blocks(c, &c->out_counts, &c->out_offsets);
    if (gather_passes(c))
        case_out(c, total);
    if (has_result && (c->in_place || c->layout == LAYOUT_WOVEN)) {
        size_t at = c->in_place ? c->out_offsets[rank] : 0;

        case_fill(c, &c->out, at, 0, c->out_counts[rank]);
        c->input = case_at(c, &c->out, at);
    } else {
        case_in(c, c->out_counts[rank]);
        case_fill(c, &c->in, 0, 0, c->out_counts[rank]);
    }
    if (!has_result && c->data.seed % 4 == 2)
        c->output = c->in.data;
    for (int r = 0; r < ranks && has_result; r++)
        case_expect(c, c->out_offsets[r], c->out_counts[r], r, 0);
}

static dist_status all_gather_call(struct test_case *c, dist_work **works)
{
    return CALL(all_gather, c->input, c->output, c->count, c->data.dtype);
}

/* Returns NULL for contiguous blocks, which need no offsets. */
static const size_t *case_offsets(const struct test_case *c, const size_t *offsets)
{
    return case_has_offsets(c) ? offsets : NULL;
}

static dist_status all_gather_v_call(struct test_case *c, dist_work **works)
{
    return CALL(all_gather_v, c->input, c->output, c->out_counts, case_offsets(c, c->out_offsets),
                c->data.dtype);
}

static dist_status gather_call(struct test_case *c, dist_work **works)
{
    return CALL(gather, c->input, c->output, c->count, c->data.dtype, c->root);
}

static dist_status gather_v_call(struct test_case *c, dist_work **works)
{
    const size_t *counts = gather_passes(c) ? c->out_counts : NULL;
    const size_t *offsets = counts ? case_offsets(c, c->out_offsets) : NULL;
    size_t own = c->out_counts[c->b->rank];

    return CALL(gather_v, c->input, own, c->output, counts, offsets, c->data.dtype, c->root);
}

/* Collectives that reduce. */

/* ---- all_reduce ---- */

static void reduce_shape(struct test_case *c)
{
    bool has_result = !(c->operation->flags & ROOTED) || c->root == c->b->rank;

    if (!c->in_place) {
        case_in(c, c->count);
        case_fill(c, &c->in, 0, 0, c->count);
    }
    /* A rank without a result may pass NULL, or memory that must not change. */
    if (c->in_place || has_result || c->b->seed % 2)
        case_out(c, c->count);
    if (c->in_place) {
        case_fill(c, &c->out, 0, 0, c->count);
        c->input = c->output;
    }
    if (has_result)
        case_expect(c, 0, c->count, REDUCED, 0);
}

static dist_op reduce_op(const struct test_case *c)
{
    return c->b->ops[c->data.op];
}

static dist_status all_reduce_call(struct test_case *c, dist_work **works)
{
    return CALL(all_reduce, c->input, c->output, c->count, c->data.dtype, reduce_op(c));
}

static dist_status reduce_call(struct test_case *c, dist_work **works)
{
    return CALL(reduce, c->input, c->output, c->count, c->data.dtype, reduce_op(c), c->root);
}

/* ---- all_reduce_coalesced ---- */

/* Number of buffers, which are parts of `out` with gaps between them. */
#define COALESCED_BUFFERS 6

static size_t coalesced_count(const struct test_case *c, int i)
{
    const size_t counts[COALESCED_BUFFERS] = {c->count / 2, c->count, 0, 1, c->count / 7, c->count};

    return counts[i];
}

static void coalesced_shape(struct test_case *c)
{
    size_t total = 0, at = 0;

    for (int i = 0; i < COALESCED_BUFFERS; i++)
        total += coalesced_count(c, i) + 1;
    case_out(c, total);
    for (int i = 0; i < COALESCED_BUFFERS; i++) {
        size_t count = coalesced_count(c, i);

        case_fill(c, &c->out, at, at, count);
        case_expect(c, at, count, REDUCED, at);
        at += count + 1;
    }
}

static dist_status all_reduce_coalesced_call(struct test_case *c, dist_work **works)
{
    void *buffers[COALESCED_BUFFERS];
    size_t counts[COALESCED_BUFFERS];

    for (int i = 0; i < COALESCED_BUFFERS; i++) {
        counts[i] = coalesced_count(c, i);
        buffers[i] = counts[i] ? case_at(c, &c->out, c->blocks[i].at) : NULL;
    }
    return CALL(all_reduce_coalesced, buffers, counts, COALESCED_BUFFERS, c->data.dtype,
                reduce_op(c));
}

/* ---- reduce_scatter ---- */

/* Rank r's block follows the blocks of the lower ranks. In place, the result replaces it. */
static void reduce_scatter_shape(struct test_case *c)
{
    int rank = c->b->rank;
    size_t own, total;

    total = case_blocks(c, &c->in_counts, &c->in_offsets);
    own = c->in_offsets[rank];
    if (c->in_place) {
        case_out(c, total);
        case_fill(c, &c->out, 0, 0, total);
        case_expect(c, own, c->in_counts[rank], REDUCED, own);
        c->input = c->out.data;
        c->output = case_at(c, &c->out, own);
        return;
    }
    case_in(c, total);
    case_fill(c, &c->in, 0, 0, total);
    case_out(c, c->in_counts[rank]);
    case_expect(c, 0, c->in_counts[rank], REDUCED, own);
}

static dist_status reduce_scatter_call(struct test_case *c, dist_work **works)
{
    return CALL(reduce_scatter, c->input, c->output, c->count, c->data.dtype, reduce_op(c));
}

static dist_status reduce_scatter_v_call(struct test_case *c, dist_work **works)
{
    return CALL(reduce_scatter_v, c->input, c->output, c->in_counts, c->data.dtype, reduce_op(c));
}

/* reduce_scatter_v has no offsets, so LAYOUT_UNEVEN replaces the layouts that need them. */
static void reduce_scatter_v_shape(struct test_case *c)
{
    if (case_has_offsets(c))
        c->layout = LAYOUT_UNEVEN;
    reduce_scatter_shape(c);
}

/* Collectives that distribute blocks: scatter and all_to_all. */

/* ---- scatter ---- */

/* True if the rank passes an input buffer. Ranks other than the root may pass NULL, their output,
 * or memory that must not change: all are tested. */
static bool scatter_passes(const struct test_case *c)
{
    return c->root == c->b->rank || c->data.seed % 2;
}

static void scatter_shape(struct test_case *c)
{
    int rank = c->b->rank;
    bool root = c->root == rank;
    size_t own, total, at;

    total = case_blocks(c, &c->in_counts, &c->in_offsets);
    own = c->in_offsets[rank];
    if (root && (c->in_place || c->layout == LAYOUT_WOVEN)) {
        at = c->in_place ? own : 0;
        case_out(c, total);
        case_fill(c, &c->out, 0, 0, total);
        c->input = c->out.data;
        c->output = case_at(c, &c->out, at);
        case_expect(c, at, c->in_counts[rank], rank, own);
        return;
    }
    if (scatter_passes(c))
        case_in(c, total);
    if (root)
        case_fill(c, &c->in, 0, 0, total);
    case_out(c, c->in_counts[rank]);
    case_expect(c, 0, c->in_counts[rank], c->root, own);
    if (!root && c->data.seed % 4 == 2)
        c->input = c->out.data;
}

static dist_status scatter_call(struct test_case *c, dist_work **works)
{
    return CALL(scatter, c->input, c->output, c->count, c->data.dtype, c->root);
}

static dist_status scatter_v_call(struct test_case *c, dist_work **works)
{
    const size_t *counts = scatter_passes(c) ? c->in_counts : NULL;
    const size_t *offsets = counts ? case_offsets(c, c->in_offsets) : NULL;
    size_t own = c->in_counts[c->b->rank];

    return CALL(scatter_v, c->input, counts, offsets, c->output, own, c->data.dtype, c->root);
}

/* ---- all_to_all ---- */

/*
 * Sets what `rank` sends: to rank r counts[r] elements, which begin at offsets[r] of its row.
 * LAYOUT_WOVEN: they are stored in the gaps before the output blocks. Returns the total.
 */
static size_t to_all_sends(struct test_case *c, int rank, size_t *counts, size_t *offsets)
{
    size_t total;

    for (int r = 0; r < c->b->ranks; r++)
        counts[r] = case_block_count(c, rank, r);
    total = case_layout(c, counts, offsets);
    for (int r = 0; r < c->b->ranks && c->layout == LAYOUT_WOVEN; r++)
        offsets[r] -= c->count;
    return total;
}

static void to_all_shape(struct test_case *c)
{
    int ranks = c->b->ranks, rank = c->b->rank;
    size_t n = (size_t)ranks, total;

    c->in_counts = battery_alloc(n, sizeof(*c->in_counts));
    c->in_offsets = battery_alloc(n, sizeof(*c->in_offsets));
    c->out_counts = battery_alloc(n, sizeof(*c->out_counts));
    c->out_offsets = battery_alloc(n, sizeof(*c->out_offsets));
    for (int r = 0; r < ranks; r++)
        c->out_counts[r] = case_block_count(c, r, rank);
    case_out(c, case_layout(c, c->out_counts, c->out_offsets));
    for (int r = 0; r < ranks; r++) { /* in_counts and in_offsets are scratch in this loop */
        to_all_sends(c, r, c->in_counts, c->in_offsets);
        case_expect(c, c->out_offsets[r], c->out_counts[r], r, c->in_offsets[rank]);
    }
    total = to_all_sends(c, rank, c->in_counts, c->in_offsets);
    if (c->layout != LAYOUT_WOVEN)
        case_in(c, total);
    case_fill(c, c->in.memory ? &c->in : &c->out, 0, 0, total);
    if (!c->in.memory)
        c->input = c->out.data;
}

static dist_status all_to_all_call(struct test_case *c, dist_work **works)
{
    return CALL(all_to_all, c->input, c->output, c->count, c->data.dtype);
}

static dist_status all_to_all_v_call(struct test_case *c, dist_work **works)
{
    const size_t *in_offsets = case_offsets(c, c->in_offsets);
    const size_t *out_offsets = case_offsets(c, c->out_offsets);

    return CALL(all_to_all_v, c->input, c->in_counts, in_offsets, c->output, c->out_counts,
                out_offsets, c->data.dtype);
}

/* ---- send and receive between pairs of ranks ---- */

/*
 * Number of messages in each direction. The first and the last have the same tag and must stay in
 * order. The second has a different tag, and is received first in nonblocking modes. Without tags
 * all stay in order.
 */
#define EXCHANGE_MESSAGES 3

/*
 * Returns the rank's partner: rank + partner = root, modulo the size of the world. So pairs are
 * mutual, and a rank may be its own partner.
 */
static int exchange_partner(const struct test_case *c)
{
    return (c->root - c->b->rank + c->b->ranks) % c->b->ranks;
}

/* Messages are consecutive parts of the row with these lengths. */
static size_t exchange_count(const struct test_case *c, int message)
{
    return message == 1 ? c->count / 3 : c->count;
}

static size_t exchange_offset(const struct test_case *c, int message)
{
    size_t offset = 0;

    for (int m = 0; m < message; m++)
        offset += exchange_count(c, m);
    return offset;
}

static void exchange_shape(struct test_case *c)
{
    size_t total = exchange_offset(c, EXCHANGE_MESSAGES);

    case_in(c, total);
    case_fill(c, &c->in, 0, 0, total);
    case_out(c, total);
    for (int m = 0; m < EXCHANGE_MESSAGES; m++)
        case_expect(c, exchange_offset(c, m), exchange_count(c, m), exchange_partner(c),
                    exchange_offset(c, m));
    c->works_needed = 2 * EXCHANGE_MESSAGES;
    c->sources = battery_alloc(EXCHANGE_MESSAGES, sizeof(*c->sources));
    for (int m = 0; m < EXCHANGE_MESSAGES; m++)
        c->sources[m] = -2;
}

/* Sends or receives all messages. `waits`: the calls block, so receives keep the sending order. */
static dist_status exchange_half(struct test_case *c, bool send, bool waits, dist_work **works)
{
    const bool tags = !(c->b->lacks & DIST_LACKS_TAGS);
    const int partner = exchange_partner(c);
    dist_group *group = c->b->group;
    dist_dtype dtype = c->data.dtype;
    dist_status status = DIST_OK;

    for (int i = 0; i < EXCHANGE_MESSAGES && status == DIST_OK; i++) {
        int m = waits || send || i == 2 || !tags ? i : 1 - i;
        int tag = m == 1 && tags ? c->tag + 1000 : c->tag;
        size_t count = exchange_count(c, m);
        void *data = case_at(c, send ? &c->in : &c->out, exchange_offset(c, m));

        if (send && works)
            status = dist_isend(group, data, count, dtype, partner, tag, &works[i]);
        else if (send)
            status = dist_send(group, data, count, dtype, partner, tag);
        else if (works)
            status = dist_irecv(group, data, count, dtype, partner, tag, &c->sources[m], &works[i]);
        else
            status = dist_recv(group, data, count, dtype, partner, tag, &c->sources[m]);
    }
    return status;
}

/*
 * A blocking send may wait for the receiver, so the lower rank of a pair sends first, and a rank
 * uses nonblocking sends to itself. For nonblocking calls, and between group_start and group_end,
 * the order does not matter.
 */
static dist_status exchange_call(struct test_case *c, dist_work **works)
{
    int partner = exchange_partner(c);
    bool first = partner > c->b->rank || c->data.seed % 2;
    bool plain = !works && c->b->mode == MODE_BLOCKING;
    dist_status status;

    if (plain)
        first = partner > c->b->rank;
    if (plain && partner == c->b->rank) {
        status = exchange_half(c, true, true, c->works);
        return status == DIST_OK ? exchange_half(c, false, true, NULL) : status;
    }
    status = exchange_half(c, first, plain, works);
    if (status != DIST_OK)
        return status;
    return exchange_half(c, !first, plain, works ? works + EXCHANGE_MESSAGES : NULL);
}

static void exchange_check(struct test_case *c)
{
    int partner = exchange_partner(c);

    for (int m = 0; m < EXCHANGE_MESSAGES; m++) {
        c->b->checks++;
        if (c->sources[m] != partner)
            battery_fault(c->b, "%s: message %d: recv returned source rank %d, should be %d",
                          case_name(c), m, c->sources[m], partner);
    }
}

/* ---- all ranks send to the root ---- */

/* The root receives from any source, or from each rank in turn if the backend lacks that. */
static void any_shape(struct test_case *c)
{
    int ranks = c->b->ranks;

    case_in(c, c->count);
    case_fill(c, &c->in, 0, 0, c->count);
    if (c->root != c->b->rank)
        return;
    case_out(c, (size_t)ranks * c->count);
    c->works_needed = ranks + 1;
    c->sources = battery_alloc((size_t)ranks, sizeof(*c->sources));
    for (int r = 0; r < ranks; r++)
        c->sources[r] = -2;
}

/* The root sends to itself with a nonblocking send, since a blocking one could wait for its own
 * receive. */
static dist_status any_call(struct test_case *c, dist_work **works)
{
    bool root = c->root == c->b->rank, plain = !works && c->b->mode == MODE_BLOCKING;
    dist_work **own = root && plain ? c->works : works;
    dist_status status;

    if (own)
        status = dist_isend(c->b->group, c->input, c->count, c->data.dtype, c->root, c->tag, own);
    else
        status = dist_send(c->b->group, c->input, c->count, c->data.dtype, c->root, c->tag);
    for (int r = 0; r < c->b->ranks && root && status == DIST_OK; r++) {
        void *to = case_at(c, &c->out, (size_t)r * c->count);
        int from = c->b->lacks & DIST_LACKS_ANY_SOURCE ? r : DIST_ANY_SOURCE;

        if (works)
            status = dist_irecv(c->b->group, to, c->count, c->data.dtype, from, c->tag,
                                &c->sources[r], &works[r + 1]);
        else
            status =
                dist_recv(c->b->group, to, c->count, c->data.dtype, from, c->tag, &c->sources[r]);
    }
    return status;
}

/*
 * Checks that each rank's message has arrived exactly once, and adds expected blocks with the data
 * of the reported senders.
 */
static void any_check(struct test_case *c)
{
    for (int r = 0; r < c->b->ranks && c->sources; r++) {
        int source = c->sources[r], times = 0;

        for (int other = 0; other < c->b->ranks; other++)
            times += c->sources[other] == r;
        c->b->checks++;
        if (times != 1)
            battery_fault(c->b, "%s: the message of rank %d arrived %d times", case_name(c), r,
                          times);
        if (source >= 0 && source < c->b->ranks)
            case_expect(c, (size_t)r * c->count, c->count, source, 0);
    }
}

/* ---- barrier: checks only that it completes ---- */

static dist_status barrier_call(struct test_case *c, dist_work **works)
{
    return works ? dist_barrier_async(c->b->group, works) : dist_barrier(c->b->group);
}

/* ---- the table of operations ---- */

const struct operation battery_operations[] = {
    {"all_reduce", DIST_COLL_ALL_REDUCE, IN_PLACE | AGREES, reduce_shape, all_reduce_call, NULL},
    {"all_reduce_coalesced", DIST_COLL_ALL_REDUCE, AGREES, coalesced_shape,
     all_reduce_coalesced_call, NULL},
    {"reduce", DIST_COLL_REDUCE, IN_PLACE | ROOTED, reduce_shape, reduce_call, NULL},
    {"reduce_scatter", DIST_COLL_REDUCE_SCATTER, IN_PLACE | BLOCKS, reduce_scatter_shape,
     reduce_scatter_call, NULL},
    {"broadcast", DIST_COLL_BROADCAST, ROOTED, broadcast_shape, broadcast_call, NULL},
    {"reduce_scatter_v", DIST_COLL_REDUCE_SCATTER_V, IN_PLACE | LAYOUTS | BLOCKS,
     reduce_scatter_v_shape, reduce_scatter_v_call, NULL},
    {"all_gather", DIST_COLL_ALL_GATHER, IN_PLACE | BLOCKS, gather_shape, all_gather_call, NULL},
    {"all_gather_v", DIST_COLL_ALL_GATHER_V, IN_PLACE | LAYOUTS | BLOCKS, gather_shape,
     all_gather_v_call, NULL},
    {"gather", DIST_COLL_GATHER, IN_PLACE | ROOTED | BLOCKS, gather_shape, gather_call, NULL},
    {"gather_v", DIST_COLL_GATHER_V, IN_PLACE | ROOTED | LAYOUTS | BLOCKS, gather_shape,
     gather_v_call, NULL},
    {"scatter", DIST_COLL_SCATTER, IN_PLACE | ROOTED | BLOCKS, scatter_shape, scatter_call, NULL},
    {"scatter_v", DIST_COLL_SCATTER_V, IN_PLACE | ROOTED | LAYOUTS | BLOCKS, scatter_shape,
     scatter_v_call, NULL},
    {"all_to_all", DIST_COLL_ALL_TO_ALL, BLOCKS, to_all_shape, all_to_all_call, NULL},
    {"all_to_all_v", DIST_COLL_ALL_TO_ALL_V, LAYOUTS | BLOCKS, to_all_shape, all_to_all_v_call,
     NULL},
    {"send", DIST_COLL_SEND, ROOTED, exchange_shape, exchange_call, exchange_check},
    {"recv", DIST_COLL_RECV, ROOTED | BLOCKS, any_shape, any_call, any_check},
    {"barrier", DIST_COLL_BARRIER, 0, NULL, barrier_call, NULL},
    {.name = NULL},
};

const struct operation *battery_operation(const char *name)
{
    for (const struct operation *o = battery_operations; o->name; o++) {
        if (strcmp(o->name, name) == 0)
            return o;
    }
    return NULL;
}
