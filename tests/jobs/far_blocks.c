/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * far_blocks BACKEND: the v-forms with offsets above 32 bits. The memory is reserved, but only the
 * surroundings of the blocks are touched. Exit 0 if all is right, 77 if the address space is too
 * small.
 */
#include <dist/dist.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define RANKS_MAX 4
#define STRIDE ((uint64_t)9 << 28) /* bytes between blocks: 2.25 GiB */
#define MARGIN 64

enum kind { ALL_GATHER, GATHER, SCATTER, ALL_TO_ALL, KINDS };
static const char *const names[KINDS] = {"all_gather_v", "gather_v", "scatter_v", "all_to_all_v"};

static dist_group *group;
static int rank, ranks, faults;
static size_t size; /* bytes of an element */
static unsigned char *in, *out;

/* Returns the number of elements from rank `from` for rank `to`. */
static size_t count_of(int from, int to)
{
    return 900 + 7 * (size_t)from + 3 * (size_t)to;
}

/* Returns the offset of a rank's block in elements; the last rank's block is the first. */
static size_t offset_of(int other)
{
    return ((size_t)(ranks - 1 - other) * STRIDE + MARGIN * sizeof(int32_t)) / size;
}

static unsigned char value(int from, int to, size_t i)
{
    return (unsigned char)(1 + from * 31 + to * 7 + i % 197);
}

static void give(int to, size_t offset)
{
    for (size_t i = 0; i < count_of(rank, to) * size; i++)
        in[offset * size + i] = value(rank, to, i);
}

/* Checks the block from rank `from` for rank `to` and its margins, which are zero. Clears the
 * block. */
static void check(enum kind kind, int from, int to, size_t offset)
{
    unsigned char *block = out + offset * size;
    size_t bytes = count_of(from, to) * size, wrong = 0;

    for (size_t i = 0; i < bytes; i++)
        wrong += block[i] != value(from, to, i);
    for (size_t i = 0; i < MARGIN; i++)
        wrong += block[bytes + i] || *(block - 1 - i);
    if (wrong && faults++ < 5)
        printf("rank %d: %s of elements of %zu bytes, from rank %d: %zu bytes are wrong\n", rank,
               names[kind], size, from, wrong);
    memset(block, 0, bytes);
}

static dist_status call(enum kind kind, dist_dtype dtype)
{
    size_t in_counts[RANKS_MAX], out_counts[RANKS_MAX], offsets[RANKS_MAX];
    bool to_all = kind == ALL_TO_ALL;
    int root = ranks - 1;

    for (int r = 0; r < ranks; r++) {
        in_counts[r] = to_all ? count_of(rank, r) : count_of(root, r);
        out_counts[r] = to_all ? count_of(r, rank) : count_of(r, 0);
        offsets[r] = offset_of(r);
    }
    switch (kind) {
    case ALL_GATHER:
        return dist_all_gather_v(group, in + offset_of(0) * size, out, out_counts, offsets, dtype);
    case GATHER:
        return dist_gather_v(group, in + offset_of(0) * size, out_counts[rank], out, out_counts,
                             offsets, dtype, root);
    case SCATTER:
        return dist_scatter_v(group, in, in_counts, offsets, out + offset_of(rank) * size,
                              in_counts[rank], dtype, root);
    default:
        return dist_all_to_all_v(group, in, in_counts, offsets, out, out_counts, offsets, dtype);
    }
}

static void run(enum kind kind, dist_dtype dtype)
{
    int root = ranks - 1;

    size = dist_dtype_size(dtype);
    for (int r = 0; r < ranks; r++)
        give(r, offset_of(r));
    if (call(kind, dtype) != DIST_OK) {
        printf("rank %d: %s: %s\n", rank, names[kind], dist_last_error());
        faults++;
        return;
    }
    for (int r = 0; r < ranks; r++) {
        if (kind == SCATTER && r == rank)
            check(kind, root, rank, offset_of(rank));
        else if (kind == ALL_TO_ALL)
            check(kind, r, rank, offset_of(r));
        else if (kind == ALL_GATHER || (kind == GATHER && rank == root))
            check(kind, r, 0, offset_of(r));
    }
}

static void *reserve(void)
{
    size_t bytes = (size_t)(RANKS_MAX * STRIDE);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

int main(int argc, char **argv)
{
    struct dist_options options = DIST_OPTIONS_INIT;

    options.backend = argc > 1 ? argv[1] : NULL;
    if (sizeof(void *) > 4) {
        in = reserve();
        out = reserve();
    }
    if (!in || !out) {
        printf("not enough address space for blocks that far apart\n");
        return 77;
    }
    if (dist_init_process_group(&options, &group) != DIST_OK) {
        printf("init: %s\n", dist_last_error());
        return 1;
    }
    rank = dist_get_rank(group);
    ranks = dist_get_world_size(group);
    for (int kind = 0; kind < KINDS && ranks <= RANKS_MAX && !faults; kind++) {
        run((enum kind)kind, DIST_UINT8);
        run((enum kind)kind, DIST_INT32);
    }
    if (dist_destroy_process_group(group) != DIST_OK)
        faults++;
    return faults || ranks > RANKS_MAX ? 1 : 0;
}
