/* SPDX-License-Identifier: BSD-3-Clause */
/* A case: its memory, and whether the right things came into it and nothing else changed. */
#include "battery.h"
#include "tools/common/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

size_t case_block_count(const struct test_case *c, int from, int to)
{
    static const int parts[] = {0, 4, 1, 3}; /* quarters of count */

    if (c->layout == LAYOUT_EVEN)
        return c->count;
    return c->count * (size_t)parts[(from * 3 + to * 5 + (int)(c->data.seed % 7)) % 4] / 4;
}

bool case_has_offsets(const struct test_case *c)
{
    return c->layout == LAYOUT_GAPS || c->layout == LAYOUT_WOVEN;
}

/*
 * In gaps the odd ranks' blocks come first, from the last to the first, then the even ones, each
 * some elements behind the one before. Woven, count elements are free before each block.
 */
size_t case_layout(struct test_case *c, const size_t *counts, size_t *offsets)
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

size_t case_blocks(struct test_case *c, size_t **counts_p, size_t **offsets_p)
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

static void case_empty(struct test_case *c)
{
    if (c->in.memory && !c->in.bytes)
        c->give = case_nowhere(c, c->in.data, c->get);
    if (c->out.memory && !c->out.bytes)
        c->get = case_nowhere(c, c->out.data, c->give);
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
    case_empty(c);
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
