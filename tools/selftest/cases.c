/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases of the battery: their data, their memory, and those of collectives. */
#include "tools/common/gpu.h"
#include "tools/common/number.h"
#include "tools/selftest/battery.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How many different values a row of floats has. */
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

/* Float number k of DATA_FLOATS; a float16 has it exactly, a bfloat16 may not. */
static double data_value(dist_op op, unsigned k)
{
    if (op == DIST_PROD) /* near 1, so that eight of them neither vanish nor overflow */
        return 0.75 + (double)(k % 8) / 16;
    return ((double)k - DATA_FLOATS / 2.0) / 16;
}

/* The bits of element i of rank's row, as the type's bytes lie in a little-endian number. */
static uint64_t data_bits(const struct data *d, int rank, size_t i)
{
    uint64_t mixed = data_mix(data_mix(d->seed + (uint64_t)rank * 0x10001) + i);
    size_t size = dist_dtype_size(d->dtype);

    if (number_is_float(d->dtype))
        return number_bits(d->dtype, data_value(d->op, (unsigned)(mixed % DATA_FLOATS)));
    if (d->dtype == DIST_BOOL)
        return mixed % 8 ? 1 + (mixed >> 8) % 255 : 0; /* some AND of eight shall be true */
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

/* ---- operations of the program's own ---- */

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

/* What reductions must give: computed rank by rank, in wider types than the library uses. */

static bool expect_signed(dist_dtype dtype)
{
    return dtype == DIST_INT8 || dtype == DIST_INT32 || dtype == DIST_INT64;
}

/* The low bits of a number, extended to 64 as the type says. */
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

/* All but 0 is true, and comes out as 1. Sum and greatest are "or", product and least "and". */
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

/* The value, and the room that rounding needs: some roundings of the size of the sum a step. */
static double expect_float(const struct data *d, int ranks, size_t i, double *room_p)
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
    *room_p = ldexp(size, -1 - number_mantissa(d->dtype)) * (ranks + 1);
    if (d->op == DIST_MIN || d->op == DIST_MAX)
        *room_p = 0;
    if (d->op != DIST_AVG)
        return result;
    *room_p /= ranks;
    return result / ranks;
}

bool data_reduced(const struct data *d, int ranks, size_t i, const void *found, double *expected_p,
                  double *found_p)
{
    uint64_t bits = 0, expected;
    double room;

    memcpy(&bits, found, dist_dtype_size(d->dtype));
    if (number_is_float(d->dtype) && d->op != DIST_USER) {
        *expected_p = expect_float(d, ranks, i, &room);
        *found_p = number_of(d->dtype, bits);
        return fabs(*expected_p - *found_p) <= room; /* false for a NaN */
    }
    if (d->op == DIST_USER) {
        /* Bytes added to bytes. */
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

/* A case: its memory, and whether the right things came into it and nothing else changed. */

#define GUARD_BYTES 64
#define GUARD 0xa5

/* ---- memory ---- */

void *battery_alloc(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);

    if (!memory) {
        fprintf(stderr, "no memory for %zu x %zu bytes\n", count, size);
        exit(1);
    }
    return memory;
}

static size_t case_element(const struct test_case *c)
{
    return dist_dtype_size(c->data.dtype);
}

/* Of MEMORY_ANY each rank's buffers are of another memory, differently in each case. */
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
        fprintf(stderr, "no memory of that kind for %zu bytes\n", bytes);
        exit(1);
    }
    return memory;
}

/* Between guards, and at no better alignment than an element has. */
static void case_buffer(struct test_case *c, struct buffer *buffer, size_t count)
{
    size_t bytes = count * case_element(c) + 3 * GUARD_BYTES;

    buffer->bytes = count * case_element(c);
    buffer->memory = case_memory(c, buffer, bytes);
    buffer->image = gpu_owns(buffer->memory) ? battery_alloc(bytes, 1) : buffer->memory;
    memset(buffer->image, GUARD, bytes);
    buffer->data = buffer->memory + GUARD_BYTES + case_element(c);
}

/* Memory of a device becomes what its image is, or the other way. */
static void case_copy(struct test_case *c, const struct buffer *buffer, bool out)
{
    size_t bytes = buffer->bytes + 3 * GUARD_BYTES;

    if (buffer->image == buffer->memory)
        return;
    c->b->checks++;
    if (!(out ? gpu_get(buffer->image, buffer->memory, bytes)
              : gpu_put(buffer->memory, buffer->image, bytes)))
        battery_fault(c->b, "%s: the driver does not copy its memory", case_name(c));
}

void case_in(struct test_case *c, size_t count)
{
    case_buffer(c, &c->in, count);
    c->give = c->in.data;
}

void case_out(struct test_case *c, size_t count)
{
    case_buffer(c, &c->out, count);
    c->get = c->out.data;
}

void *case_at(const struct test_case *c, const struct buffer *buffer, size_t element)
{
    return buffer->data + element * case_element(c);
}

void *case_image(const struct test_case *c, const struct buffer *buffer, size_t element)
{
    return buffer->image + (buffer->data - buffer->memory) + element * case_element(c);
}

void case_give(struct test_case *c, struct buffer *to, size_t at, size_t first, size_t count)
{
    data_fill(&c->data, c->b->rank, first, count, case_image(c, to, at));
}

void case_expect(struct test_case *c, size_t at, size_t count, int giver, size_t first)
{
    const struct block block = {.at = at, .count = count, .giver = giver, .first = first};
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
 * In gaps the odd ranks' blocks come first, from the last to the first, then the even ones, each
 * some elements behind the one before. Woven, count elements are free before each block.
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

/* Makes counts and offsets of one block a rank, each rank's own. All elements. */
static size_t case_blocks(struct test_case *c, size_t **counts_p, size_t **offsets_p)
{
    size_t ranks = (size_t)c->b->ranks;

    *counts_p = battery_alloc(ranks, sizeof(**counts_p));
    *offsets_p = battery_alloc(ranks, sizeof(**offsets_p));
    for (int r = 0; r < c->b->ranks; r++)
        (*counts_p)[r] = case_block_count(c, r, 0);
    return case_layout(c, *counts_p, *offsets_p);
}

/* ---- life ---- */

static void case_remember(struct test_case *c, struct buffer *buffer)
{
    size_t bytes = buffer->bytes + 3 * GUARD_BYTES;

    if (!buffer->memory)
        return;
    buffer->before = battery_alloc(bytes, 1);
    memcpy(buffer->before, buffer->image, bytes);
    case_copy(c, buffer, false);
}

/* Returns an address that a program may pass for an empty buffer. Open MPI's MPI_IN_PLACE is
   address 1, and Rust's empty slices of bytes are there too. */
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
    operation->shape(c);
    if (c->in.memory && !c->in.bytes)
        c->give = case_nowhere(c, c->in.data, c->get);
    if (c->out.memory && !c->out.bytes)
        c->get = case_nowhere(c, c->out.data, c->give);
    if (!c->works_needed)
        c->works_needed = 1;
    c->works = battery_alloc((size_t)c->works_needed, sizeof(*c->works));
    case_remember(c, &c->in);
    case_remember(c, &c->out);
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

const char *case_name(const struct test_case *c)
{
    static const char *const modes[] = {
#define CASE_MODE(name, text) [MODE_##name] = text,
        BATTERY_MODES(CASE_MODE)
#undef CASE_MODE
    };
    static const char *const layouts[] = {"even", "uneven", "gaps", "woven"};
    static char name[160];
    int n =
        snprintf(name, sizeof(name), "%s %s", c->operation->name, dist_dtype_string(c->data.dtype));

    if (c->operation->flags & OPERATION_REDUCES)
        n += snprintf(name + n, sizeof(name) - (size_t)n, " %s", dist_op_string(c->data.op));
    n += snprintf(name + n, sizeof(name) - (size_t)n, ", count %zu", c->count);
    if (c->operation->flags & OPERATION_ROOTED)
        n += snprintf(name + n, sizeof(name) - (size_t)n, ", root %d", c->root);
    if (c->operation->flags & OPERATION_LAYOUTS)
        n += snprintf(name + n, sizeof(name) - (size_t)n, ", %s", layouts[c->layout]);
    snprintf(name + n, sizeof(name) - (size_t)n, ", %s, %s", c->in_place ? "in place" : "apart",
             modes[c->b->mode]);
    return name;
}

/* ---- the check ---- */

/* Every element where there are few; else the edges and a sample. */
static size_t case_next(size_t i, size_t count)
{
    if (count <= 4096 || i < 64 || i + 64 >= count)
        return i + 1;
    return i + 1 + (i * 2654435761u) % 97;
}

/* True, or the fault has been reported. */
static bool case_check_element(struct test_case *c, const struct block *block, size_t i)
{
    const void *found = case_image(c, &c->out, block->at + i);
    double expected, is;
    uint64_t bits = 0, row;

    if (block->giver == REDUCED) {
        if (data_reduced(&c->data, c->b->ranks, block->first + i, found, &expected, &is))
            return true;
        battery_fault(c->b, "%s: element %zu is %.9g, should be %.9g", case_name(c), block->at + i,
                      is, expected);
        return false;
    }
    memcpy(&bits, found, case_element(c));
    row = data_bits(&c->data, block->giver, block->first + i);
    if (bits == row)
        return true;
    battery_fault(c->b, "%s: element %zu is 0x%llx, should be 0x%llx, rank %d's element %zu",
                  case_name(c), block->at + i, (unsigned long long)bits, (unsigned long long)row,
                  block->giver, block->first + i);
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
    /* What was to change has been seen: the rest must be as before. */
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

static void case_check_rest(struct test_case *c)
{
    case_check_same(c, &c->in, "changed its input");
    case_check_same(c, &c->out, "wrote outside its result");
}

void case_check_unchanged(struct test_case *c)
{
    case_copy(c, &c->in, true);
    case_copy(c, &c->out, true);
    case_check_rest(c);
}

void case_check(struct test_case *c)
{
    case_copy(c, &c->in, true);
    case_copy(c, &c->out, true);
    if (c->operation->check)
        c->operation->check(c);
    for (int i = 0; i < c->block_count; i++)
        case_check_block(c, &c->blocks[i]);
    case_check_rest(c);
}

/* Barriers, where what counts is when they end. */

static double barrier_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static dist_status barrier_monitored(dist_group *group)
{
    return dist_monitored_barrier(group, 0);
}

static dist_status barrier_async(dist_group *group)
{
    dist_work *work;
    dist_status status = dist_barrier_async(group, &work);

    return status == DIST_OK ? dist_wait(work) : status;
}

/*
 * Nobody leaves a barrier before everybody has come: each rank in turn comes last; the times of
 * coming, gathered, tell. One machine, one clock.
 */
static void barrier_holds(struct battery *b, dist_status (*barrier)(dist_group *), const char *name)
{
    double *came = battery_alloc((size_t)b->ranks, sizeof(*came)), mine, left;

    for (int late = 0; late < b->ranks; late++) {
        if (b->rank == late) {
            const struct timespec nap = {2 / 1000, 2 % 1000 * 1000000L};

            nanosleep(&nap, NULL);
        }
        mine = barrier_now();
        battery_ok(b, barrier(b->group), name);
        left = barrier_now();
        battery_ok(b, dist_all_gather(b->group, &mine, came, 1, DIST_FLOAT64), "barrier's times");
        for (int r = 0; r < b->ranks; r++) {
            if (came[r] > left)
                battery_fault(b, "left a %s before rank %d had come", name, r);
        }
    }
    free(came);
}

void cases_barrier(struct battery *b)
{
    barrier_holds(b, dist_barrier, "barrier");
    barrier_holds(b, barrier_async, "barrier_async");
    barrier_holds(b, barrier_monitored, "monitored barrier");
    /*
     * The last rank comes too late for a short timeout: rank 0 must name it, and the group must go
     * on. It comes when the others have given up: a barrier says so.
     */
    int last = b->ranks - 1;
    dist_status status = DIST_OK;
    char name[32];

    if (b->ranks == 1)
        return;
    snprintf(name, sizeof(name), "rank %d", last);
    if (b->rank == last)
        battery_ok(b, dist_barrier(b->group), "barrier before a monitored one");
    status = dist_monitored_barrier(b->group, b->rank == last ? 0 : 150);
    b->checks++;
    if (b->rank == last)
        battery_ok(b, status, "a monitored barrier that this rank comes to late");
    else if (status != DIST_ERR_TIMEOUT)
        battery_fault(b, "a monitored barrier that %s misses: %s", name,
                      dist_status_string(status));
    else if (!strstr(dist_last_error(), name))
        battery_fault(b, "a monitored barrier does not name %s: %s", name, dist_last_error());
    if (b->rank != last)
        battery_ok(b, dist_barrier(b->group), "barrier after a monitored one that failed");
    battery_ok(b, dist_monitored_barrier(b->group, 0), "the next monitored barrier");
}

/* The collectives that copy from one to all, or bring together: broadcast, all_gather, gather. */

/* The call of that name, or its _async form if a case asks for works. */
#define CALL(name, ...)                                                                            \
    (works ? dist_##name##_async(c->b->group, __VA_ARGS__, works)                                  \
           : dist_##name(c->b->group, __VA_ARGS__))

/* A collective that has a call, name_call, and no check of its own. */
#define OPERATION(name, NAME, flags, shape)                                                        \
    const struct operation operation_##name = {#name,         DIST_COLL_##NAME, flags,             \
                                               shape##_shape, name##_call,      NULL}

/* ---- broadcast ---- */

static void broadcast_shape(struct test_case *c)
{
    case_out(c, c->count);
    if (c->root == c->b->rank)
        case_give(c, &c->out, 0, 0, c->count);
    case_expect(c, 0, c->count, c->root, 0);
}

static dist_status broadcast_call(struct test_case *c, dist_work **works)
{
    return CALL(broadcast, c->get, c->count, c->data.dtype, c->root);
}

OPERATION(broadcast, BROADCAST, OPERATION_ROOTED, broadcast);

/* ---- all_gather and gather ---- */

/* What a rank without a result passes does not matter: nothing, `in`, or what stays as it is. */
static bool gather_passes(const struct test_case *c)
{
    bool has_result = !(c->operation->flags & OPERATION_ROOTED) || c->root == c->b->rank;

    return has_result || c->data.seed % 2;
}

static void gather_shape(struct test_case *c)
{
    int ranks = c->b->ranks, rank = c->b->rank;
    bool has_result = !(c->operation->flags & OPERATION_ROOTED) || c->root == rank;
    size_t total;

    total = case_blocks(c, &c->out_counts, &c->out_offsets);
    if (gather_passes(c))
        case_out(c, total);
    if (has_result && (c->in_place || c->layout == LAYOUT_WOVEN)) {
        size_t at = c->in_place ? c->out_offsets[rank] : 0;

        case_give(c, &c->out, at, 0, c->out_counts[rank]);
        c->give = case_at(c, &c->out, at);
    } else {
        case_in(c, c->out_counts[rank]);
        case_give(c, &c->in, 0, 0, c->out_counts[rank]);
    }
    if (!has_result && c->data.seed % 4 == 2)
        c->get = c->in.data;
    for (int r = 0; r < ranks && has_result; r++)
        case_expect(c, c->out_offsets[r], c->out_counts[r], r, 0);
}

static dist_status all_gather_call(struct test_case *c, dist_work **works)
{
    return CALL(all_gather, c->give, c->get, c->count, c->data.dtype);
}

OPERATION(all_gather, ALL_GATHER, OPERATION_IN_PLACE | OPERATION_BLOCKS, gather);

/* Blocks one after the other need no offsets. */
static const size_t *case_offsets(const struct test_case *c, const size_t *offsets)
{
    return case_has_offsets(c) ? offsets : NULL;
}

static dist_status all_gather_v_call(struct test_case *c, dist_work **works)
{
    return CALL(all_gather_v, c->give, c->get, c->out_counts, case_offsets(c, c->out_offsets),
                c->data.dtype);
}

OPERATION(all_gather_v, ALL_GATHER_V, OPERATION_IN_PLACE | OPERATION_LAYOUTS | OPERATION_BLOCKS,
          gather);

static dist_status gather_call(struct test_case *c, dist_work **works)
{
    return CALL(gather, c->give, c->get, c->count, c->data.dtype, c->root);
}

OPERATION(gather, GATHER, OPERATION_IN_PLACE | OPERATION_ROOTED | OPERATION_BLOCKS, gather);

static dist_status gather_v_call(struct test_case *c, dist_work **works)
{
    const size_t *counts = gather_passes(c) ? c->out_counts : NULL;
    const size_t *offsets = counts ? case_offsets(c, c->out_offsets) : NULL;
    size_t own = c->out_counts[c->b->rank];

    return CALL(gather_v, c->give, own, c->get, counts, offsets, c->data.dtype, c->root);
}

OPERATION(gather_v, GATHER_V,
          OPERATION_IN_PLACE | OPERATION_ROOTED | OPERATION_LAYOUTS | OPERATION_BLOCKS, gather);

/* The collectives that reduce. */

/* ---- all_reduce ---- */

static void reduce_shape(struct test_case *c)
{
    bool has_result = !(c->operation->flags & OPERATION_ROOTED) || c->root == c->b->rank;

    if (!c->in_place) {
        case_in(c, c->count);
        case_give(c, &c->in, 0, 0, c->count);
    }
    /* What a rank without a result passes does not matter: nothing, or memory that stays. */
    if (c->in_place || has_result || c->b->seed % 2)
        case_out(c, c->count);
    if (c->in_place) {
        case_give(c, &c->out, 0, 0, c->count);
        c->give = c->get;
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
    return CALL(all_reduce, c->give, c->get, c->count, c->data.dtype, reduce_op(c));
}

OPERATION(all_reduce, ALL_REDUCE, OPERATION_REDUCES | OPERATION_IN_PLACE | OPERATION_AGREES,
          reduce);

static dist_status reduce_call(struct test_case *c, dist_work **works)
{
    return CALL(reduce, c->give, c->get, c->count, c->data.dtype, reduce_op(c), c->root);
}

OPERATION(reduce, REDUCE, OPERATION_REDUCES | OPERATION_IN_PLACE | OPERATION_ROOTED, reduce);

/* ---- all_reduce_coalesced ---- */

/* So many buffers of these parts of count, each somewhere in `out`, gaps between. */
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

        case_give(c, &c->out, at, at, count);
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

OPERATION(all_reduce_coalesced, ALL_REDUCE, OPERATION_REDUCES | OPERATION_AGREES, coalesced);

/* ---- reduce_scatter ---- */

/* Rank r's block begins where the blocks before it end; in place it stays there. */
static void reduce_scatter_shape(struct test_case *c)
{
    int rank = c->b->rank;
    size_t own, total;

    total = case_blocks(c, &c->in_counts, &c->in_offsets);
    own = c->in_offsets[rank];
    if (c->in_place) {
        case_out(c, total);
        case_give(c, &c->out, 0, 0, total);
        case_expect(c, own, c->in_counts[rank], REDUCED, own);
        c->give = c->out.data;
        c->get = case_at(c, &c->out, own);
        return;
    }
    case_in(c, total);
    case_give(c, &c->in, 0, 0, total);
    case_out(c, c->in_counts[rank]);
    case_expect(c, 0, c->in_counts[rank], REDUCED, own);
}

static dist_status reduce_scatter_call(struct test_case *c, dist_work **works)
{
    return CALL(reduce_scatter, c->give, c->get, c->count, c->data.dtype, reduce_op(c));
}

OPERATION(reduce_scatter, REDUCE_SCATTER, OPERATION_REDUCES | OPERATION_IN_PLACE | OPERATION_BLOCKS,
          reduce_scatter);

static dist_status reduce_scatter_v_call(struct test_case *c, dist_work **works)
{
    return CALL(reduce_scatter_v, c->give, c->get, c->in_counts, c->data.dtype, reduce_op(c));
}

/* It has no offsets: gaps are left out. */
static void reduce_scatter_v_shape(struct test_case *c)
{
    if (case_has_offsets(c))
        c->layout = LAYOUT_UNEVEN;
    reduce_scatter_shape(c);
}

OPERATION(reduce_scatter_v, REDUCE_SCATTER_V,
          OPERATION_REDUCES | OPERATION_IN_PLACE | OPERATION_LAYOUTS | OPERATION_BLOCKS,
          reduce_scatter_v);

/* The collectives that hand out blocks: scatter and all_to_all. */

/* ---- scatter ---- */

/* What the other ranks pass does not matter: nothing, `out`, or what stays as it is. */
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
        case_give(c, &c->out, 0, 0, total);
        c->give = c->out.data;
        c->get = case_at(c, &c->out, at);
        case_expect(c, at, c->in_counts[rank], rank, own);
        return;
    }
    if (scatter_passes(c))
        case_in(c, total);
    if (root)
        case_give(c, &c->in, 0, 0, total);
    case_out(c, c->in_counts[rank]);
    case_expect(c, 0, c->in_counts[rank], c->root, own);
    if (!root && c->data.seed % 4 == 2)
        c->give = c->out.data;
}

static dist_status scatter_call(struct test_case *c, dist_work **works)
{
    return CALL(scatter, c->give, c->get, c->count, c->data.dtype, c->root);
}

OPERATION(scatter, SCATTER, OPERATION_IN_PLACE | OPERATION_ROOTED | OPERATION_BLOCKS, scatter);

static dist_status scatter_v_call(struct test_case *c, dist_work **works)
{
    const size_t *counts = scatter_passes(c) ? c->in_counts : NULL;
    const size_t *offsets = counts ? case_offsets(c, c->in_offsets) : NULL;
    size_t own = c->in_counts[c->b->rank];

    return CALL(scatter_v, c->give, counts, offsets, c->get, own, c->data.dtype, c->root);
}

OPERATION(scatter_v, SCATTER_V,
          OPERATION_IN_PLACE | OPERATION_ROOTED | OPERATION_LAYOUTS | OPERATION_BLOCKS, scatter);

/* ---- all_to_all ---- */

/*
 * What `rank` sends: to rank r counts[r] elements, which begin at offsets[r] of its row. Woven,
 * they are in what is free before the blocks of out.
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
    for (int r = 0; r < ranks; r++) { /* the arrays for `in` serve for the others' first */
        to_all_sends(c, r, c->in_counts, c->in_offsets);
        case_expect(c, c->out_offsets[r], c->out_counts[r], r, c->in_offsets[rank]);
    }
    total = to_all_sends(c, rank, c->in_counts, c->in_offsets);
    if (c->layout != LAYOUT_WOVEN)
        case_in(c, total);
    case_give(c, c->in.memory ? &c->in : &c->out, 0, 0, total);
    if (!c->in.memory)
        c->give = c->out.data;
}

static dist_status all_to_all_call(struct test_case *c, dist_work **works)
{
    return CALL(all_to_all, c->give, c->get, c->count, c->data.dtype);
}

OPERATION(all_to_all, ALL_TO_ALL, OPERATION_BLOCKS, to_all);

static dist_status all_to_all_v_call(struct test_case *c, dist_work **works)
{
    const size_t *in_offsets = case_offsets(c, c->in_offsets);
    const size_t *out_offsets = case_offsets(c, c->out_offsets);

    return CALL(all_to_all_v, c->give, c->in_counts, in_offsets, c->get, c->out_counts, out_offsets,
                c->data.dtype);
}

OPERATION(all_to_all_v, ALL_TO_ALL_V, OPERATION_LAYOUTS | OPERATION_BLOCKS, to_all);
