/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: the memory of a call, as bytes. */
#include "preload/preload.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

long long disti_number(struct disti_numbers numbers, int i)
{
    return numbers.bytes == sizeof(int) ? ((const int *)numbers.array)[i]
                                        : ((const long long *)numbers.array)[i];
}

/* ---- types ---- */

static bool layout_type_is_contiguous(MPI_Datatype type);

/* Copies (MPI_Type_dup) and rows (MPI_Type_contiguous) are what they are made of. */
static bool layout_inner_is_contiguous(MPI_Datatype type, int combiner)
{
    int integers[1], ignored;
    MPI_Aint addresses[1];
    MPI_Datatype inner;
    bool contiguous;

    if (PMPI_Type_get_contents(type, combiner == MPI_COMBINER_CONTIGUOUS, 0, 1, integers, addresses,
                               &inner) != MPI_SUCCESS)
        return false;
    contiguous = layout_type_is_contiguous(inner);
    if (PMPI_Type_get_envelope(inner, &ignored, &ignored, &ignored, &combiner) == MPI_SUCCESS &&
        combiner != MPI_COMBINER_NAMED)
        PMPI_Type_free(&inner);
    return contiguous;
}

/* Do elements lie without gaps, in the order in which they are packed? If in doubt: no. */
static bool layout_type_is_contiguous(MPI_Datatype type)
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
           layout_inner_is_contiguous(type, combiner);
}

/*
 * MPICH's MPI_Pack takes MPI_BOTTOM for a mistake: memory begins a little above it then, and the
 * type as much below.
 */
static int layout_type_above(struct disti_layout *layout, MPI_Datatype type)
{
    static const int one = 1;
    static const MPI_Aint below = -64;
    int code = PMPI_Type_create_hindexed(1, &one, &below, type, &layout->type);

    layout->memory = (char *)(uintptr_t)-below;
    return code == MPI_SUCCESS ? PMPI_Type_commit(&layout->type) : code;
}

/* The last type of this thread that MPI has itself, so that nobody frees it, without gaps. */
static DISTI_THREAD_LOCAL struct {
    MPI_Datatype type;
    size_t size; /* 0: none yet */
} layout_last;

bool disti_type_stays(MPI_Datatype type)
{
    return layout_last.size && layout_last.type == type;
}

size_t disti_type_size(MPI_Datatype type)
{
    MPI_Count size;

    if (disti_type_stays(type))
        return layout_last.size;
    return PMPI_Type_size_x(type, &size) == MPI_SUCCESS && size > 0 ? (size_t)size : 0;
}

bool disti_type_is_committed(MPI_Datatype type)
{
    char nothing = 0;
    int used = 0;

    return disti_type_stays(type) ||
           PMPI_Pack(&nothing, 0, type, &nothing, 0, &used, disti_preload.self) == MPI_SUCCESS;
}

static void layout_remember(const struct disti_layout *layout, MPI_Datatype type)
{
    int ignored, combiner = MPI_COMBINER_DUP;

    if (!layout->contiguous ||
        PMPI_Type_get_envelope(type, &ignored, &ignored, &ignored, &combiner) != MPI_SUCCESS ||
        combiner != MPI_COMBINER_NAMED)
        return;
    layout_last.type = type;
    layout_last.size = layout->size;
}

static int layout_ask(struct disti_layout *layout, MPI_Datatype type, bool copy)
{
    MPI_Aint lower;
    MPI_Count size;
    int code = PMPI_Type_size_x(type, &size);

    if (code == MPI_SUCCESS)
        code = PMPI_Type_get_extent(type, &lower, &layout->extent);
    if (code != MPI_SUCCESS)
        return code;
    layout->size = (size_t)size;
    layout->contiguous = !copy && layout_type_is_contiguous(type);
    layout_remember(layout, type);
    if (layout->contiguous)
        return MPI_SUCCESS;
    if (!layout->memory)
        return layout_type_above(layout, type);
    return PMPI_Type_dup(type, &layout->type); /* the program may free its own before we are done */
}

static int layout_type(struct disti_layout *layout, MPI_Datatype type, bool copy)
{
    if (copy || !disti_type_stays(type))
        return layout_ask(layout, type, copy);
    layout->size = layout_last.size;
    layout->extent = (MPI_Aint)layout_last.size;
    return MPI_SUCCESS;
}

/* ---- packing ---- */

/*
 * MPI has our own communicator for it: an error is the call's, and no affair of MPI_COMM_SELF's
 * handler. MPI_Pack counts its bytes in an int: so many at a time.
 */
#define PACK_BYTES (1 << 30)

/* Persistent operations have all the other tags of the communicator. */
#define PACK_TAG 0

/* One element is received at a time, lest two threads get each other's. */
static pthread_mutex_t pack_lock = PTHREAD_MUTEX_INITIALIZER;

/* So many packed bytes, as a type. */
static int pack_whole(size_t size, MPI_Datatype *whole_p)
{
    const int lengths[2] = {(int)(size / PACK_BYTES), (int)(size % PACK_BYTES)};
    const MPI_Aint places[2] = {0, (MPI_Aint)(size - size % PACK_BYTES)};
    MPI_Datatype types[2] = {MPI_DATATYPE_NULL, MPI_PACKED};
    int code = PMPI_Type_contiguous(PACK_BYTES, MPI_PACKED, &types[0]);

    if (code != MPI_SUCCESS)
        return code;
    code = PMPI_Type_create_struct(2, lengths, places, types, whole_p);
    PMPI_Type_free(&types[0]);
    return code == MPI_SUCCESS ? PMPI_Type_commit(whole_p) : code;
}

/* As a message to this process itself, which may be as long as it likes. */
static int pack_long(const struct disti_layout *layout, char *memory, char *bytes, bool packs)
{
    MPI_Comm self = disti_preload.self;
    MPI_Datatype whole;
    int code = pack_whole(layout->size, &whole);

    if (code != MPI_SUCCESS)
        return code;
    pthread_mutex_lock(&pack_lock);
    code = packs ? PMPI_Sendrecv(memory, 1, layout->type, 0, PACK_TAG, bytes, 1, whole, 0, PACK_TAG,
                                 self, MPI_STATUS_IGNORE)
                 : PMPI_Sendrecv(bytes, 1, whole, 0, PACK_TAG, memory, 1, layout->type, 0, PACK_TAG,
                                 self, MPI_STATUS_IGNORE);
    pthread_mutex_unlock(&pack_lock);
    PMPI_Type_free(&whole);
    return code;
}

/* Copies elements of a layout's type between the program's memory and bytes; packs: to the bytes.
 */
static int layout_pack(const struct disti_layout *layout, char *memory, char *bytes, size_t count,
                       bool packs)
{
    size_t most = layout->size < PACK_BYTES ? PACK_BYTES / layout->size : 1;
    int code = MPI_SUCCESS;

    while (count && code == MPI_SUCCESS) {
        int n = (int)(count < most ? count : most), used = 0;

        if (layout->size > INT_MAX)
            code = pack_long(layout, memory, bytes, packs);
        else if (packs)
            code = PMPI_Pack(memory, n, layout->type, bytes, n * (int)layout->size, &used,
                             disti_preload.self);
        else
            code = PMPI_Unpack(bytes, n * (int)layout->size, &used, memory, n, layout->type,
                               disti_preload.self);
        memory = disti_layout_address(memory, n * layout->extent);
        bytes += (size_t)n * layout->size;
        count -= (size_t)n;
    }
    return code;
}

static int layout_copy_blocks(const struct disti_layout *layout, int first, int blocks, bool packs)
{
    int code = MPI_SUCCESS;

    if (layout->contiguous || !layout->size)
        return MPI_SUCCESS;
    for (int b = first; b < first + blocks && code == MPI_SUCCESS; b++) {
        size_t elements = disti_layout_size(layout, b) / layout->size;
        MPI_Aint displacement = layout->displacements
                                    ? layout->displacements[b]
                                    : (MPI_Aint)elements * (MPI_Aint)b * layout->extent;

        code = layout_pack(layout, disti_layout_address(layout->memory, displacement),
                           layout->bytes + disti_layout_offset(layout, b), elements, packs);
    }
    return code;
}

int disti_layout_load(const struct disti_layout *layout, int first, int blocks)
{
    return layout_copy_blocks(layout, first, blocks, true);
}

int disti_layout_store(const struct disti_layout *layout, int first, int blocks)
{
    return layout_copy_blocks(layout, first, blocks, false);
}

/* ---- blocks ---- */

size_t disti_layout_size(const struct disti_layout *layout, int block)
{
    return layout->sizes ? layout->sizes[block] : layout->block;
}

size_t disti_layout_offset(const struct disti_layout *layout, int block)
{
    return layout->sizes ? layout->offsets[block] : layout->block * (size_t)block;
}

size_t disti_layout_span(const struct disti_layout *layout)
{
    size_t span = 0;

    if (!layout->sizes)
        return layout->block * (size_t)layout->blocks;
    for (int b = 0; b < layout->blocks; b++) {
        size_t end = layout->offsets[b] + layout->sizes[b];

        span = layout->sizes[b] && end > span ? end : span;
    }
    return span;
}

/* The least displacement, so that offsets from there are not negative. */
static long long layout_least(const struct disti_layout *layout, const struct disti_buffer *buffer)
{
    long long least = 0;
    bool any = false;

    for (int b = 0; b < layout->blocks; b++) {
        long long displ = disti_number(buffer->displs, b);

        if (layout->sizes[b] && (!any || displ < least)) {
            least = displ;
            any = true;
        }
    }
    return least;
}

static int layout_spread(struct disti_layout *layout, const struct disti_buffer *buffer)
{
    size_t blocks = (size_t)layout->blocks, packed = 0;
    long long least;

    layout->sizes = calloc(blocks, sizeof(*layout->sizes));
    layout->offsets = calloc(blocks, sizeof(*layout->offsets));
    layout->displacements = calloc(blocks, sizeof(*layout->displacements));
    if (!layout->sizes || !layout->offsets || !layout->displacements)
        return MPI_ERR_NO_MEM;
    for (size_t b = 0; b < blocks; b++)
        layout->sizes[b] = (size_t)disti_number(buffer->counts, (int)b) * layout->size;
    least = layout_least(layout, buffer);
    if (layout->contiguous)
        layout->bytes = disti_layout_address(layout->memory, (MPI_Aint)least * layout->extent);
    for (size_t b = 0; b < blocks; b++) {
        long long displ = disti_number(buffer->displs, (int)b);

        layout->displacements[b] = (MPI_Aint)displ * layout->extent;
        if (!layout->contiguous)
            layout->offsets[b] = packed;
        else if (layout->sizes[b])
            layout->offsets[b] = (size_t)(displ - least) * layout->size;
        packed += layout->sizes[b];
    }
    layout->block = packed;
    return MPI_SUCCESS;
}

int disti_layout_open(struct disti_layout *layout, const struct disti_buffer *buffer, int blocks,
                      bool copy)
{
    size_t bytes;
    int code;

    disti_layout_clear(layout);
    layout->memory = layout->bytes = (char *)(uintptr_t)buffer->memory;
    layout->blocks = blocks;
    code = layout_type(layout, buffer->type, copy);
    if (!layout->contiguous)
        layout->bytes = NULL; /* until there is a copy, for disti_layout_close */
    if (code != MPI_SUCCESS)
        return code;
    layout->block = (size_t)buffer->count * layout->size;
    bytes = layout->block * (size_t)blocks;
    if (buffer->counts.array) {
        code = layout_spread(layout, buffer);
        bytes = layout->block;
    }
    if (code != MPI_SUCCESS || layout->contiguous)
        return code;
    layout->bytes = malloc(bytes ? bytes : 1);
    return layout->bytes ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}

void disti_layout_close(struct disti_layout *layout)
{
    if (!layout->contiguous)
        free(layout->bytes);
    free(layout->sizes);
    free(layout->offsets);
    free(layout->displacements);
    if (layout->type != MPI_DATATYPE_NULL)
        PMPI_Type_free(&layout->type);
    disti_layout_clear(layout);
}

bool disti_pack_is_data_only(void)
{
    static const int given[3] = {0x01020304, 0, 0x05060708};
    static const int wanted[2] = {0x01020304, 0x05060708};
    char packed[sizeof(wanted)] = "";
    MPI_Datatype type;
    int used = 0;
    bool good = PMPI_Type_vector(2, 1, 2, MPI_INT, &type) == MPI_SUCCESS;

    if (!good)
        return false;
    good = PMPI_Type_commit(&type) == MPI_SUCCESS &&
           PMPI_Pack(given, 1, type, packed, sizeof(packed), &used, MPI_COMM_SELF) == MPI_SUCCESS &&
           used == (int)sizeof(wanted) && memcmp(packed, wanted, sizeof(wanted)) == 0;
    PMPI_Type_free(&type);
    return good;
}
