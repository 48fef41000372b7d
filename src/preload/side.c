/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: the memory of a call, as bytes. */
#include "preload/serve.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* MPI_Pack counts its bytes in an int: so many at a time. */
#define SIDE_PACK_BYTES (1 << 30)

long long disti_number(struct disti_numbers numbers, int i)
{
    return numbers.bytes == sizeof(int) ? ((const int *)numbers.at)[i]
                                        : ((const long long *)numbers.at)[i];
}

/* ---- types ---- */

static bool side_type_is_dense(MPI_Datatype type);

/* Copies (MPI_Type_dup) and rows (MPI_Type_contiguous) are what they are made of. */
static bool side_inner_is_dense(MPI_Datatype type, int combiner)
{
    int integers[1], ignored;
    MPI_Aint addresses[1];
    MPI_Datatype inner;
    bool dense;

    if (PMPI_Type_get_contents(type, combiner == MPI_COMBINER_CONTIGUOUS, 0, 1, integers, addresses,
                               &inner) != MPI_SUCCESS)
        return false;
    dense = side_type_is_dense(inner);
    if (PMPI_Type_get_envelope(inner, &ignored, &ignored, &ignored, &combiner) == MPI_SUCCESS &&
        combiner != MPI_COMBINER_NAMED)
        PMPI_Type_free(&inner);
    return dense;
}

/* Do elements lie without gaps, in the order in which they are packed? If in doubt: no. */
static bool side_type_is_dense(MPI_Datatype type)
{
    int integers, addresses, types, combiner;
    MPI_Aint lower, extent;
    MPI_Count size;

    if (PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner) != MPI_SUCCESS ||
        PMPI_Type_size_x(type, &size) != MPI_SUCCESS ||
        PMPI_Type_get_extent(type, &lower, &extent) != MPI_SUCCESS || lower != 0 || size != extent)
        return false;
    if (combiner == MPI_COMBINER_NAMED)
        return true;
    return (combiner == MPI_COMBINER_DUP || combiner == MPI_COMBINER_CONTIGUOUS) &&
           side_inner_is_dense(type, combiner);
}

static int side_type(struct disti_side *side, MPI_Datatype type, bool copy)
{
    MPI_Aint lower;
    MPI_Count size;
    int code = PMPI_Type_size_x(type, &size);

    if (code == MPI_SUCCESS)
        code = PMPI_Type_get_extent(type, &lower, &side->extent);
    if (code != MPI_SUCCESS)
        return code;
    side->size = (size_t)size;
    side->plain = !copy && side_type_is_dense(type);
    if (side->plain)
        return MPI_SUCCESS;
    return PMPI_Type_dup(type, &side->type); /* the program may free its own before we are done */
}

/* ---- packing ---- */

/* Memory at a displacement that may be negative, from a base that may be MPI_BOTTOM. */
static char *side_at(char *base, MPI_Aint displacement)
{
    return (char *)((uintptr_t)base + (uintptr_t)displacement);
}

static int side_copy(const struct disti_side *side, char *memory, char *bytes, size_t count,
                     bool packs)
{
    size_t most = side->size < SIDE_PACK_BYTES ? SIDE_PACK_BYTES / side->size : 1;
    int code = MPI_SUCCESS;

    if (side->size > INT_MAX)
        return MPI_ERR_COUNT; /* MPI_Pack cannot say so many */
    while (count && code == MPI_SUCCESS) {
        int n = (int)(count < most ? count : most), at = 0, size = n * (int)side->size;

        code = packs ? PMPI_Pack(memory, n, side->type, bytes, size, &at, MPI_COMM_SELF)
                     : PMPI_Unpack(bytes, size, &at, memory, n, side->type, MPI_COMM_SELF);
        memory = side_at(memory, n * side->extent);
        bytes += size;
        count -= (size_t)n;
    }
    return code;
}

static int side_copy_blocks(const struct disti_side *side, int first, int blocks, bool packs)
{
    int code = MPI_SUCCESS;

    if (side->plain || !side->size)
        return MPI_SUCCESS;
    for (int b = first; b < first + blocks && code == MPI_SUCCESS; b++) {
        size_t elements = disti_side_size(side, b) / side->size;
        MPI_Aint place =
            side->places ? side->places[b] : (MPI_Aint)elements * (MPI_Aint)b * side->extent;

        code = side_copy(side, side_at(side->memory, place),
                         side->bytes + disti_side_offset(side, b), elements, packs);
    }
    return code;
}

int disti_side_load(const struct disti_side *side, int first, int blocks)
{
    return side_copy_blocks(side, first, blocks, true);
}

int disti_side_store(const struct disti_side *side, int first, int blocks)
{
    return side_copy_blocks(side, first, blocks, false);
}

bool disti_pack_is_plain(void)
{
    static const int given[3] = {0x01020304, 0, 0x05060708};
    static const int wanted[2] = {0x01020304, 0x05060708};
    char packed[sizeof(wanted)] = "";
    MPI_Datatype type;
    int at = 0;
    bool plain = PMPI_Type_vector(2, 1, 2, MPI_INT, &type) == MPI_SUCCESS;

    if (!plain)
        return false;
    plain = PMPI_Type_commit(&type) == MPI_SUCCESS &&
            PMPI_Pack(given, 1, type, packed, sizeof(packed), &at, MPI_COMM_SELF) == MPI_SUCCESS &&
            at == (int)sizeof(wanted) && memcmp(packed, wanted, sizeof(wanted)) == 0;
    PMPI_Type_free(&type);
    return plain;
}

/* ---- blocks ---- */

size_t disti_side_size(const struct disti_side *side, int block)
{
    return side->sizes ? side->sizes[block] : side->block;
}

size_t disti_side_offset(const struct disti_side *side, int block)
{
    return side->sizes ? side->offsets[block] : side->block * (size_t)block;
}

size_t disti_side_span(const struct disti_side *side)
{
    size_t span = 0;

    if (!side->sizes)
        return side->block * (size_t)side->blocks;
    for (int b = 0; b < side->blocks; b++) {
        size_t end = side->offsets[b] + side->sizes[b];

        span = side->sizes[b] && end > span ? end : span;
    }
    return span;
}

/* The least displacement, so that offsets from there are not negative. */
static long long side_least(const struct disti_side *side, const struct disti_buffer *buffer)
{
    long long least = 0;
    bool any = false;

    for (int b = 0; b < side->blocks; b++) {
        long long displ = disti_number(buffer->displs, b);

        if (side->sizes[b] && (!any || displ < least)) {
            least = displ;
            any = true;
        }
    }
    return least;
}

static int side_spread(struct disti_side *side, const struct disti_buffer *buffer)
{
    size_t blocks = (size_t)side->blocks, packed = 0;
    long long least;

    side->sizes = calloc(blocks, sizeof(*side->sizes));
    side->offsets = calloc(blocks, sizeof(*side->offsets));
    side->places = calloc(blocks, sizeof(*side->places));
    if (!side->sizes || !side->offsets || !side->places)
        return MPI_ERR_NO_MEM;
    for (size_t b = 0; b < blocks; b++)
        side->sizes[b] = (size_t)disti_number(buffer->counts, (int)b) * side->size;
    least = side_least(side, buffer);
    if (side->plain)
        side->bytes = side_at(side->memory, (MPI_Aint)least * side->extent);
    for (size_t b = 0; b < blocks; b++) {
        long long displ = disti_number(buffer->displs, (int)b);

        side->places[b] = (MPI_Aint)displ * side->extent;
        if (!side->plain)
            side->offsets[b] = packed;
        else if (side->sizes[b])
            side->offsets[b] = (size_t)(displ - least) * side->size;
        packed += side->sizes[b];
    }
    side->block = packed;
    return MPI_SUCCESS;
}

int disti_side_open(struct disti_side *side, const struct disti_buffer *buffer, int blocks,
                    bool copy)
{
    size_t bytes;
    int code;

    *side = (struct disti_side){.memory = (char *)(uintptr_t)buffer->memory,
                                .bytes = (char *)(uintptr_t)buffer->memory,
                                .type = MPI_DATATYPE_NULL,
                                .plain = true,
                                .blocks = blocks};
    code = side_type(side, buffer->type, copy);
    if (code != MPI_SUCCESS)
        return code;
    side->block = (size_t)buffer->count * side->size;
    bytes = side->block * (size_t)blocks;
    if (buffer->counts.at) {
        code = side_spread(side, buffer);
        bytes = side->block;
    }
    if (code != MPI_SUCCESS || side->plain)
        return code;
    side->bytes = malloc(bytes ? bytes : 1);
    return side->bytes ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}

void disti_side_close(struct disti_side *side)
{
    if (!side->plain)
        free(side->bytes);
    free(side->sizes);
    free(side->offsets);
    free(side->places);
    if (side->type != MPI_DATATYPE_NULL)
        PMPI_Type_free(&side->type);
    *side = (struct disti_side){.type = MPI_DATATYPE_NULL, .plain = true};
}
