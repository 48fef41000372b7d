/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: decides whether libdist serves a call or forwards it to MPI, and runs calls. */
#include "preload/preload.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Layouts: converts the program's typed memory to bytes. */

static long long number_at(struct disti_numbers numbers, int i)
{
    return numbers.bytes == sizeof(int) ? ((const int *)numbers.array)[i]
                                        : ((const long long *)numbers.array)[i];
}

/* ---- types ---- */

/*
 * True if the elements have no gaps and are stored in the order in which they are packed. False if
 * unknown. Duplicates (MPI_Type_dup) and arrays (MPI_Type_contiguous) are judged by their inner
 * type.
 */
static bool layout_type_is_contiguous(MPI_Datatype type)
{
    int ignored, combiner;
    MPI_Aint lower, extent;
    MPI_Datatype inner;
    MPI_Count size;
    bool contiguous;

    if (PMPI_Type_get_envelope(type, &ignored, &ignored, &ignored, &combiner) != MPI_SUCCESS ||
        PMPI_Type_size_x(type, &size) != MPI_SUCCESS ||
        PMPI_Type_get_extent(type, &lower, &extent) != MPI_SUCCESS || lower != 0 || size != extent)
        return false;
    if (combiner == MPI_COMBINER_NAMED)
        return true;
    if ((combiner != MPI_COMBINER_DUP && combiner != MPI_COMBINER_CONTIGUOUS) ||
        PMPI_Type_get_contents(type, combiner == MPI_COMBINER_CONTIGUOUS, 0, 1, &ignored, &lower,
                               &inner) != MPI_SUCCESS)
        return false;
    contiguous = layout_type_is_contiguous(inner);
    if (PMPI_Type_get_envelope(inner, &ignored, &ignored, &ignored, &combiner) == MPI_SUCCESS &&
        combiner != MPI_COMBINER_NAMED)
        PMPI_Type_free(&inner);
    return contiguous;
}

/* The last contiguous predefined type that this thread used: such types are never freed. */
static DISTI_THREAD_LOCAL struct {
    MPI_Datatype type;
    size_t size; /* 0: none */
} layout_last;

/* True if the type is layout_last.type, which is never freed. */
static bool type_is_last(MPI_Datatype type)
{
    return layout_last.size && layout_last.type == type;
}

size_t disti_type_size(MPI_Datatype type)
{
    MPI_Count size;

    if (type_is_last(type))
        return layout_last.size;
    return PMPI_Type_size_x(type, &size) == MPI_SUCCESS && size > 0 ? (size_t)size : 0;
}

static int layout_type(struct disti_layout *layout, MPI_Datatype type, bool copy)
{
    if (copy || !type_is_last(type)) {
        static const int one = 1;
        static const MPI_Aint below = -64;
        int ignored, combiner;
        MPI_Aint lower;
        MPI_Count size;
        int code = PMPI_Type_size_x(type, &size);

        if (code == MPI_SUCCESS)
            code = PMPI_Type_get_extent(type, &lower, &layout->extent);
        if (code != MPI_SUCCESS)
            return code;
        layout->size = (size_t)size;
        layout->contiguous = !copy && layout_type_is_contiguous(type);
        combiner = MPI_COMBINER_DUP;
        if (layout->contiguous &&
            PMPI_Type_get_envelope(type, &ignored, &ignored, &ignored, &combiner) == MPI_SUCCESS &&
            combiner == MPI_COMBINER_NAMED) {
            layout_last.type = type;
            layout_last.size = layout->size;
        }
        if (layout->contiguous)
            return MPI_SUCCESS;
        /* Duplicates the type, since the program may free it before the operation ends. */
        if (layout->memory)
            return PMPI_Type_dup(type, &layout->type);
        /*
         * MPICH's MPI_Pack rejects MPI_BOTTOM: use a base address above 0, and a type with the
         * negative offset.
         */
        layout->memory = (char *)(uintptr_t)-below;
        code = PMPI_Type_create_hindexed(1, &one, &below, type, &layout->type);
        return code == MPI_SUCCESS ? PMPI_Type_commit(&layout->type) : code;
    }
    layout->size = layout_last.size;
    layout->extent = (MPI_Aint)layout_last.size;
    return MPI_SUCCESS;
}

/* ---- packing ---- */

/*
 * Packing uses our own communicator, so that errors are returned to this call and MPI_COMM_SELF's
 * handler is not called. MPI_Pack counts bytes in an int: larger data are packed in pieces of this
 * size.
 */
#define PACK_BYTES (1 << 30)

/* Persistent operations use all other tags of the communicator. */
#define PACK_TAG 0

/* Serializes the messages to this process, so that two threads do not receive each other's. */
static pthread_mutex_t pack_lock = PTHREAD_MUTEX_INITIALIZER;

/*
 * Packs or unpacks one element that is too large for MPI_Pack: this process sends it to itself,
 * where one side of the message has the element's type and the other side is `size` packed bytes.
 */
static int pack_long(const struct disti_layout *layout, char *memory, char *bytes, bool packs)
{
    const size_t size = layout->size;
    const int lengths[2] = {(int)(size / PACK_BYTES), (int)(size % PACK_BYTES)};
    const MPI_Aint places[2] = {0, (MPI_Aint)(size - size % PACK_BYTES)};
    MPI_Datatype types[2] = {MPI_DATATYPE_NULL, MPI_PACKED}, whole;
    MPI_Comm self = disti_preload.self;
    int code = PMPI_Type_contiguous(PACK_BYTES, MPI_PACKED, &types[0]);

    if (code != MPI_SUCCESS)
        return code;
    code = PMPI_Type_create_struct(2, lengths, places, types, &whole);
    PMPI_Type_free(&types[0]);
    if (code == MPI_SUCCESS)
        code = PMPI_Type_commit(&whole);
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

/* Copies elements of a layout's type from the program's memory to bytes (packs), or back. */
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

/* Returns the size of a block in bytes. */
static size_t layout_size(const struct disti_layout *layout, int block)
{
    return layout->sizes ? layout->sizes[block] : layout->block;
}

/* Returns the offset of a block from `bytes`. */
static size_t layout_offset(const struct disti_layout *layout, int block)
{
    return layout->sizes ? layout->offsets[block] : layout->block * (size_t)block;
}

/*
 * Copies blocks [first, first + blocks) from memory to bytes (packs), or back. Contiguous layouts
 * need no copy.
 */
static int layout_copy_blocks(const struct disti_layout *layout, int first, int blocks, bool packs)
{
    int code = MPI_SUCCESS;

    if (layout->contiguous || !layout->size)
        return MPI_SUCCESS;
    for (int b = first; b < first + blocks && code == MPI_SUCCESS; b++) {
        size_t elements = layout_size(layout, b) / layout->size;
        MPI_Aint displacement = layout->displacements
                                    ? layout->displacements[b]
                                    : (MPI_Aint)elements * (MPI_Aint)b * layout->extent;

        code = layout_pack(layout, disti_layout_address(layout->memory, displacement),
                           layout->bytes + layout_offset(layout, b), elements, packs);
    }
    return code;
}

/* ---- blocks ---- */

/* Returns the number of bytes from `bytes` to the end of the last block. */
static size_t layout_span(const struct disti_layout *layout)
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

static int layout_spread(struct disti_layout *layout, const struct disti_side *buffer)
{
    size_t blocks = (size_t)layout->blocks, packed = 0;
    long long least = 0; /* smallest displacement: offsets relative to it are not negative */
    bool any = false;

    layout->sizes = calloc(blocks, sizeof(*layout->sizes));
    layout->offsets = calloc(blocks, sizeof(*layout->offsets));
    layout->displacements = calloc(blocks, sizeof(*layout->displacements));
    if (!layout->sizes || !layout->offsets || !layout->displacements)
        return MPI_ERR_NO_MEM;
    for (size_t b = 0; b < blocks; b++) {
        long long displ = number_at(buffer->displs, (int)b);

        layout->sizes[b] = (size_t)number_at(buffer->counts, (int)b) * layout->size;
        if (layout->sizes[b] && (!any || displ < least)) {
            least = displ;
            any = true;
        }
    }
    if (layout->contiguous)
        layout->bytes = disti_layout_address(layout->memory, (MPI_Aint)least * layout->extent);
    for (size_t b = 0; b < blocks; b++) {
        long long displ = number_at(buffer->displs, (int)b);

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

/*
 * Prepares a layout; copy: as a copy even if it is contiguous. Returns MPI_SUCCESS or an MPI error
 * code. In any case the caller must call layout_close.
 */
static int layout_open(struct disti_layout *layout, const struct disti_side *buffer, int blocks,
                       bool copy)
{
    size_t bytes;
    int code;

    disti_layout_clear(layout);
    layout->memory = layout->bytes = (char *)(uintptr_t)buffer->memory;
    layout->blocks = blocks;
    code = layout_type(layout, buffer->type, copy);
    if (!layout->contiguous)
        layout->bytes = NULL; /* the copy is not allocated yet, and layout_close frees it */
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

static void layout_close(struct disti_layout *layout)
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

/* ---- checks of the arguments, as MPI makes them ---- */

/*
 * call_sends is true if this rank uses the send buffer, call_receives if it uses the receive
 * buffer. The only buffer of a broadcast is its receive buffer.
 */
static bool call_sends(dist_collective kind, bool at_root)
{
    const struct disti_collective *traits = &disti_collectives[kind];

    return !disti_collective_one_buffer(traits) && (at_root || traits->in_at == DISTI_AT_EVERY);
}

static bool call_receives(dist_collective kind, bool at_root)
{
    const struct disti_collective *traits = &disti_collectives[kind];

    return disti_collective_one_buffer(traits) || at_root || traits->out_at == DISTI_AT_EVERY;
}

/* Clears the arguments that are not significant on this rank, and so may have any value. */
static void eligible_clear(struct disti_args *args, int rank)
{
    bool at_root = rank == args->root;

    if (!call_sends(args->kind, at_root))
        args->send = (struct disti_side){.type = MPI_DATATYPE_NULL};
    if (call_receives(args->kind, at_root))
        return;
    if (disti_algorithm_reduces(args->kind)) /* its count and type also describe the send buffer */
        args->recv.memory = NULL;
    else
        args->recv = (struct disti_side){.type = MPI_DATATYPE_NULL};
}

static int eligible_layout(const struct disti_side *buffer, int ranks)
{
    char nothing = 0;
    int used = 0;

    /* The type is valid for communication if MPI_Pack accepts zero elements of it. */
    if (buffer->type == MPI_DATATYPE_NULL ||
        (!type_is_last(buffer->type) && PMPI_Pack(&nothing, 0, buffer->type, &nothing, 0, &used,
                                                  disti_preload.self) != MPI_SUCCESS))
        return MPI_ERR_TYPE;
    /* The call requires counts or displacements, but the program passed NULL. */
    if ((buffer->counts.bytes && !buffer->counts.array) ||
        (buffer->displs.bytes && !buffer->displs.array))
        return MPI_ERR_ARG;
    for (int r = 0; buffer->counts.array && r < ranks; r++) {
        if (number_at(buffer->counts, r) < 0)
            return MPI_ERR_COUNT;
    }
    return !buffer->counts.array && buffer->count < 0 ? MPI_ERR_COUNT : MPI_SUCCESS;
}

/* Error codes that each MPI returns for MPI_IN_PLACE in a wrong place, and for a NULL request. */
#ifdef OPEN_MPI
#define ELIGIBLE_ERR_IN_PLACE MPI_ERR_ARG
#define ELIGIBLE_ERR_NO_REQUEST MPI_ERR_REQUEST
#else
#define ELIGIBLE_ERR_IN_PLACE MPI_ERR_BUFFER
#define ELIGIBLE_ERR_NO_REQUEST MPI_ERR_ARG
#endif

/*
 * Checks the significant arguments. Returns MPI_SUCCESS, or the error code that MPI would return.
 */
static int eligible_check(const struct disti_args *args, enum disti_form form,
                          const struct disti_comm *comm)
{
    const void *send = args->send.memory, *recv = args->recv.memory;
    bool at_root = comm->rank == args->root, scatters = !call_sends(args->kind, false);
    const void *all = scatters ? send : recv, *own = scatters ? recv : send;
    int code = MPI_SUCCESS;

    if (form != DISTI_BLOCKING && !args->request)
        return ELIGIBLE_ERR_NO_REQUEST;
    if (args->root < 0 || args->root >= comm->ranks)
        return MPI_ERR_ROOT;
    /*
     * MPI_IN_PLACE is valid on one side only; in rooted calls only at the root, for its own block.
     */
    if (args->kind == DIST_COLL_BROADCAST
            ? recv == MPI_IN_PLACE
            : all == MPI_IN_PLACE ||
                  (disti_collective_rooted(args->kind) && !at_root && own == MPI_IN_PLACE))
        return ELIGIBLE_ERR_IN_PLACE;
    if (args->kind == DIST_COLL_BARRIER)
        return MPI_SUCCESS;
    if (disti_algorithm_reduces(args->kind)) /* both sides have the same type */
        return args->op == MPI_OP_NULL ? MPI_ERR_OP : eligible_layout(&args->recv, comm->ranks);
    /* A side that is not significant or in place has nothing to check. */
    if (call_sends(args->kind, at_root) && send != MPI_IN_PLACE)
        code = eligible_layout(&args->send, comm->ranks);
    if (call_receives(args->kind, at_root) && recv != MPI_IN_PLACE && code == MPI_SUCCESS)
        code = eligible_layout(&args->recv, comm->ranks);
    return code;
}

int disti_call_refuse(const struct disti_args *args)
{
    PMPI_Comm_call_errhandler(args->comm, args->refused);
    return args->refused;
}

/*
 * Handles the MPI code of a forwarded call and returns it. A call that MPI rejected is no longer
 * counted, since the other ranks did not make it: MPI detects more errors than our checks.
 */
static int call_forwarded(struct disti_args *args, int code)
{
    static const int classes[] = {MPI_ERR_ARG,     MPI_ERR_BUFFER, MPI_ERR_COMM,
                                  MPI_ERR_COUNT,   MPI_ERR_OP,     MPI_ERR_RANK,
                                  MPI_ERR_REQUEST, MPI_ERR_ROOT,   MPI_ERR_TYPE};
    int class = MPI_SUCCESS;

    if (code == MPI_SUCCESS || !args->counted)
        return code;
    PMPI_Error_class(code, &class);
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
        if (classes[i] == class) {
            args->counted->calls--;
            args->comparison = NULL;
        }
    }
    return code;
}

/* ---- served or forwarded ---- */

/*
 * Returns DISTI_WHY_SERVED, or why a call is not served. All counts must be equal on all ranks, so
 * a call that this rank rejects changes none.
 */
static enum disti_why eligible_reason(struct disti_args *args, enum disti_form form,
                                      struct disti_comm **comm_p)
{
    struct disti_comparison *comparison;
    struct disti_comm *comm;
    enum disti_why reason;

    if (!(disti_preload.serves & 1u << args->kind))
        return DISTI_WHY_SWITCHED_OFF;
    if (!disti_preload.active)
        return DISTI_WHY_NO_GROUP;
    if (args->comm == MPI_COMM_NULL)
        return DISTI_WHY_NO_COMMUNICATOR;
    *comm_p = comm = disti_comm_find(args->comm);
    if (!comm || comm->foreign)
        return DISTI_WHY_COMMUNICATOR;
    eligible_clear(args, comm->rank);
    args->refused = eligible_check(args, form, comm);
    if (args->refused != MPI_SUCCESS)
        return DISTI_WHY_SERVED;
    comm->calls++;
    args->counted = comm;
    /*
     * Nonblocking operations must make progress while the program computes, or blocks in an
     * unrelated MPI call for a peer that needs them: a progress thread or MPI must run them.
     */
    if (form != DISTI_BLOCKING && !disti_preload.background)
        return DISTI_WHY_NO_THREAD;
    if (disti_algorithm_reduces(args->kind)) {
        reason = disti_reduction_is_eligible(args->recv.type, args->op);
        if (reason != DISTI_WHY_SERVED)
            return reason;
    }
    args->channel = disti_comm_channel(comm, form);
    if (!args->channel)
        return DISTI_WHY_COMMUNICATOR;
    comparison = form == DISTI_BLOCKING ? disti_comparison_find(args, comm) : NULL;
    return comparison ? disti_compare(args, comparison) : DISTI_WHY_SERVED;
}

/*
 * Returns the communicator's record if all ranks serve this call, in args->channel; NULL: forward
 * the call. Counts the call, and clears arguments that are not significant. The decision is the
 * same on all ranks, except for a call that this rank rejects, of which the other ranks may know
 * nothing: then args->refused is set and the record is returned.
 */
static struct disti_comm *call_check(struct disti_args *args, enum disti_form form)
{
    struct disti_comm *comm = NULL;
    enum disti_why reason = eligible_reason(args, form, &comm);

    if (args->refused == MPI_SUCCESS)
        disti_report_count(args->kind, form, reason);
    return reason == DISTI_WHY_SERVED ? comm : NULL;
}

/* Prepares and starts an MPI call in libdist. */

/* ---- reductions ---- */

static int call_no_memory(const struct disti_call *call)
{
    fprintf(stderr, "libdist: rank %d: out of memory in an MPI collective\n", disti_preload.rank);
    PMPI_Comm_call_errhandler(call->comm->comm, MPI_ERR_NO_MEM);
    return MPI_ERR_NO_MEM;
}

/*
 * True if in and out overlap. MPI and libdist allow that only in place, but such calls are served
 * all the same: otherwise only this rank would fail.
 */
static bool call_shares(const void *in, size_t in_bytes, const void *out, size_t out_bytes)
{
    return in_bytes && out_bytes && (uintptr_t)in < (uintptr_t)out + out_bytes &&
           (uintptr_t)out < (uintptr_t)in + in_bytes;
}

/* Computes the number of elements for all ranks, and for this rank. */
static int call_open_counts(struct disti_call *call, const struct disti_args *args, size_t *all_p,
                            size_t *own_p)
{
    int ranks = call->comm->ranks;

    *all_p = call->count * (size_t)ranks;
    *own_p = call->count;
    if (args->kind == DIST_COLL_REDUCE_SCATTER)
        return MPI_SUCCESS;
    call->counts = calloc((size_t)ranks, sizeof(*call->counts));
    if (!call->counts)
        return call_no_memory(call);
    *all_p = 0;
    for (int r = 0; r < ranks; r++) {
        call->counts[r] = (size_t)number_at(args->recv.counts, r) * call->reduction.parts;
        *all_p += call->counts[r];
    }
    *own_p = call->counts[call->comm->rank];
    return MPI_SUCCESS;
}

/*
 * Prepares a reduction. MPI's in-place reduce-scatter stores the result at the beginning of the
 * buffer, libdist's in this rank's block of it.
 */
static int call_open_reduction(struct disti_call *call, const struct disti_args *args)
{
    bool scatters = disti_collectives[args->kind].in == DISTI_BLOCKS_EACH;
    size_t element, in, out;
    int code = MPI_SUCCESS;

    if (disti_reduction_find(args->recv.type, args->op, &call->reduction) != DIST_OK)
        return disti_comm_fail(args->comm);
    element = dist_dtype_size(call->reduction.dtype);
    call->in = args->send.memory == MPI_IN_PLACE ? args->recv.memory : args->send.memory;
    call->out = (void *)(uintptr_t)args->recv.memory;
    call->count = in = (size_t)args->recv.count * call->reduction.parts;
    out = call->out ? in : 0;
    if (scatters)
        code = call_open_counts(call, args, &in, &out);
    if (code == MPI_SUCCESS && (scatters || call->in != call->out) &&
        call_shares(call->in, in * element, call->out, out * element)) {
        /* The result is first stored in a temporary buffer. */
        call->temporary_bytes = out * element;
        call->temporary_for = call->out;
        call->temporary = malloc(call->temporary_bytes ? call->temporary_bytes : 1);
        call->out = call->temporary;
        code = call->temporary ? MPI_SUCCESS : call_no_memory(call);
    }
    return code;
}

/* ---- calls that only move data ---- */

static int call_open_layouts(struct disti_call *call, const struct disti_args *args)
{
    const struct disti_collective *traits = &disti_collectives[args->kind];
    bool spreads = traits->in == DISTI_BLOCKS_EACH, collects = traits->out == DISTI_BLOCKS_EACH;
    bool send_in_place = args->send.memory == MPI_IN_PLACE,
         at_root = call->comm->rank == call->root;
    int send_blocks = spreads ? call->comm->ranks : 1,
        recv_blocks = collects ? call->comm->ranks : 1;
    int code = MPI_SUCCESS;

    if (call_sends(args->kind, at_root) && !send_in_place)
        code = layout_open(&call->send, &args->send, send_blocks, false);
    /* An in-place all-to-all sends all blocks from a copy. */
    else if (call_sends(args->kind, at_root) && spreads && collects)
        code = layout_open(&call->send, &args->recv, send_blocks, true);
    if (call_receives(args->kind, at_root) && args->recv.memory != MPI_IN_PLACE &&
        code == MPI_SUCCESS)
        code = layout_open(&call->recv, &args->recv, recv_blocks, false);
    /*
     * If the buffers overlap, received data could overwrite data to be sent: send from a copy,
     * unless one side is a copy already.
     */
    if (code == MPI_SUCCESS && call->send.blocks && call->recv.blocks && call->send.contiguous &&
        call->recv.contiguous &&
        call_shares(call->send.bytes, layout_span(&call->send), call->recv.bytes,
                    layout_span(&call->recv))) {
        layout_close(&call->send);
        code = layout_open(&call->send, &args->send, send_blocks, true);
    }
    if (code != MPI_SUCCESS)
        PMPI_Comm_call_errhandler(args->comm, code);
    return code;
}

/*
 * Sets the arguments of the libdist call. A side that is missing is in place: in this rank's block
 * of the other side.
 */
static int call_open_data(struct disti_call *call, const struct disti_args *args)
{
    struct disti_layout *send = &call->send, *recv = &call->recv;
    int rank = call->comm->rank, code = call_open_layouts(call, args);

    if (code != MPI_SUCCESS)
        return code;
    if (send->blocks)
        call->in = send->bytes;
    else if (args->send.memory == MPI_IN_PLACE)
        call->in = recv->bytes + layout_offset(recv, rank);
    if (recv->blocks)
        call->out = recv->bytes;
    else if (args->recv.memory == MPI_IN_PLACE)
        call->out = send->bytes + layout_offset(send, rank);
    /* Bytes that this rank sends or receives: the only block of a side, or this rank's block. */
    if (send->blocks == 1 || recv->blocks == 1)
        call->count = layout_size(send->blocks == 1 ? send : recv, 0);
    else
        call->count = layout_size(send->blocks ? send : recv, rank);
    call->loads_own = !send->blocks && args->send.memory == MPI_IN_PLACE;
    call->loads_recv = args->kind == DIST_COLL_BROADCAST && rank == args->root;
    return MPI_SUCCESS;
}

/* ---- open, start, finish ---- */

int disti_call_open(struct disti_call *call, const struct disti_args *args, struct disti_comm *comm)
{
    int code = MPI_SUCCESS;

    /* Field by field, as in disti_layout_clear: faster for short calls. */
    call->kind = args->kind;
    call->comm = comm;
    call->channel = args->channel;
    call->root = args->root;
    disti_layout_clear(&call->send);
    disti_layout_clear(&call->recv);
    call->in = NULL;
    call->out = NULL;
    call->count = 0;
    call->counts = NULL;
    call->temporary = NULL;
    call->loads_own = false;
    call->loads_recv = false;
    if (disti_algorithm_reduces(args->kind))
        code = call_open_reduction(call, args);
    else if (args->kind != DIST_COLL_BARRIER)
        code = call_open_data(call, args);
    if (code != MPI_SUCCESS)
        call->channel->broken = true; /* the other ranks start it without this one */
    return code;
}

void disti_call_close(struct disti_call *call)
{
    if (disti_layout_owns(&call->send))
        layout_close(&call->send);
    if (disti_layout_owns(&call->recv))
        layout_close(&call->recv);
    if (!call->counts && !call->temporary)
        return;
    free(call->counts);
    free(call->temporary);
    call->counts = NULL;
    call->temporary = NULL;
}

/* Starts the operation; if work_p is NULL, runs it to completion. */
#define CALL_RUN(name, ...)                                                                        \
    (work_p ? dist_##name##_async(__VA_ARGS__, work_p) : dist_##name(__VA_ARGS__))

static dist_status call_dist(struct disti_call *call, dist_work **work_p)
{
    const struct disti_layout *send = &call->send, *recv = &call->recv;
    const struct disti_reduction *reduction = &call->reduction;
    dist_group *group = call->channel->group;
    const dist_dtype byte = DIST_UINT8;

    switch (call->kind) {
    case DIST_COLL_BARRIER:
        return work_p ? dist_barrier_async(group, work_p) : dist_barrier(group);
    case DIST_COLL_ALL_REDUCE:
        return CALL_RUN(all_reduce, group, call->in, call->out, call->count, reduction->dtype,
                        reduction->op);
    case DIST_COLL_BROADCAST:
        return CALL_RUN(broadcast, group, call->out, call->count, byte, call->root);
    case DIST_COLL_REDUCE:
        return CALL_RUN(reduce, group, call->in, call->out, call->count, reduction->dtype,
                        reduction->op, call->root);
    case DIST_COLL_ALL_GATHER:
        return CALL_RUN(all_gather, group, call->in, call->out, call->count, byte);
    case DIST_COLL_ALL_GATHER_V:
        return CALL_RUN(all_gather_v, group, call->in, call->out, recv->sizes, recv->offsets, byte);
    case DIST_COLL_REDUCE_SCATTER:
        return CALL_RUN(reduce_scatter, group, call->in, call->out, call->count, reduction->dtype,
                        reduction->op);
    case DIST_COLL_REDUCE_SCATTER_V:
        return CALL_RUN(reduce_scatter_v, group, call->in, call->out, call->counts,
                        reduction->dtype, reduction->op);
    case DIST_COLL_ALL_TO_ALL:
        return CALL_RUN(all_to_all, group, call->in, call->out, call->count, byte);
    case DIST_COLL_ALL_TO_ALL_V:
        return CALL_RUN(all_to_all_v, group, call->in, send->sizes, send->offsets, call->out,
                        recv->sizes, recv->offsets, byte);
    case DIST_COLL_GATHER:
        return CALL_RUN(gather, group, call->in, call->out, call->count, byte, call->root);
    case DIST_COLL_GATHER_V:
        return CALL_RUN(gather_v, group, call->in, call->count, call->out, recv->sizes,
                        recv->offsets, byte, call->root);
    case DIST_COLL_SCATTER:
        return CALL_RUN(scatter, group, call->in, call->out, call->count, byte, call->root);
    default:
        return CALL_RUN(scatter_v, group, call->in, send->sizes, send->offsets, call->out,
                        call->count, byte, call->root);
    }
}

int disti_call_fail(const struct disti_call *call)
{
    call->channel->broken = true;
    return disti_comm_fail(call->comm->comm);
}

/* Runs or starts the operation without copying data. */
static int call_run(struct disti_call *call, dist_work **work_p)
{
    return call_dist(call, work_p) == DIST_OK ? MPI_SUCCESS : disti_call_fail(call);
}

int disti_call_start(struct disti_call *call, dist_work **work_p)
{
    int code = layout_copy_blocks(&call->send, 0, call->send.blocks, true);

    if (code == MPI_SUCCESS && (call->loads_own || call->loads_recv))
        code = layout_copy_blocks(&call->recv, call->loads_own ? call->comm->rank : 0, 1, true);
    if (code != MPI_SUCCESS) {
        call->channel->broken = true; /* the other ranks start it */
        PMPI_Comm_call_errhandler(call->comm->comm, code);
        return code;
    }
    return call_run(call, work_p);
}

int disti_call_finish(const struct disti_call *call)
{
    if (call->temporary && call->temporary_bytes)
        memcpy(call->temporary_for, call->temporary, call->temporary_bytes);
    return call->loads_recv ? MPI_SUCCESS
                            : layout_copy_blocks(&call->recv, 0, call->recv.blocks, false);
}

/* The fast path: a blocking call with the arguments of the previous call of the same collective. */

/* Maximum number of ranks for calls with counts. */
#define FAST_CALL_RANKS 16

/*
 * Checking a short call takes longer than the call itself. So each thread stores, for each
 * collective, the last call that passed the program's own memory to libdist. A call with the same
 * arguments, except for addresses, skips the checks. Counts and displacements are compared one by
 * one, since the program may have changed them in place.
 *
 * A stored call stays valid: a communicator keeps its record as long as disti_comms_freed() does
 * not change, and the types are predefined ones, which are never freed.
 */
struct fast_call {
    bool known;
    bool sends, receives;      /* the program's arguments for this side are significant */
    bool uses_send, uses_recv; /* libdist uses this side's memory */
    bool counted;              /* the call has counts for each rank */
    unsigned freed;
    MPI_Comm comm;
    MPI_Op op;
    int root;
    /* Offsets from the program's buffers; a negative offset wraps around. */
    uintptr_t in_offset, out_offset;
    size_t in_bytes, out_bytes;
    struct disti_comparison *comparison; /* NULL: not compared */
    struct disti_call call;
    struct disti_side send, recv;        /* their counts and displacements point into `given` */
    long long given[4][FAST_CALL_RANKS]; /* int or MPI_Count */
    size_t passed[4][FAST_CALL_RANKS];   /* the values passed to libdist */
};

/* ---- stored calls of a thread ---- */

static DISTI_THREAD_LOCAL struct fast_call *fast_calls; /* by collective; NULL: none */
static pthread_key_t fast_key;
static bool fast_has_key;

static void fast_calls_free(void *calls)
{
    fast_calls = NULL;
    free(calls);
}

static void fast_calls_open(void)
{
    fast_has_key = pthread_key_create(&fast_key, fast_calls_free) == 0;
}

/* Allocates the thread's stored calls. NULL: out of memory, nothing is stored. */
static struct fast_call *fast_calls_make(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct fast_call *calls;

    pthread_once(&once, fast_calls_open);
    calls = fast_has_key ? calloc(DIST_COLL_COUNT, sizeof(*calls)) : NULL;
    if (calls && pthread_setspecific(fast_key, calls) == 0)
        return fast_calls = calls;
    free(calls);
    return NULL;
}

/* ---- a repeated call ---- */

static bool fast_numbers_are_equal(struct disti_numbers last, struct disti_numbers now, int ranks)
{
    if (!last.array || !now.array)
        return last.array == now.array;
    return last.bytes == now.bytes && memcmp(last.array, now.array, (size_t)ranks * now.bytes) == 0;
}

static bool fast_side_is_equal(const struct fast_call *last, const struct disti_side *known,
                               const struct disti_side *now)
{
    int ranks = last->call.comm->ranks;

    return known->count == now->count && known->type == now->type &&
           (!last->counted || (fast_numbers_are_equal(known->counts, now->counts, ranks) &&
                               fast_numbers_are_equal(known->displs, now->displs, ranks)));
}

static bool fast_call_matches(const struct fast_call *last, const struct disti_args *args)
{
    return last->known && last->comm == args->comm && last->root == args->root &&
           last->op == args->op && last->freed == disti_comms_freed() &&
           (!last->sends || fast_side_is_equal(last, &last->send, &args->send)) &&
           (!last->receives || (args->recv.memory != MPI_IN_PLACE &&
                                fast_side_is_equal(last, &last->recv, &args->recv)));
}

/* Sets the addresses of a repeated call. False: the call needs the full checks. */
static bool fast_call_set_addresses(struct fast_call *last, const struct disti_args *args)
{
    uintptr_t out = (uintptr_t)args->recv.memory + last->out_offset, in = out;

    if (args->send.memory == MPI_IN_PLACE) {
        if (args->kind != DIST_COLL_ALL_REDUCE)
            return false;
    } else {
        in = (uintptr_t)args->send.memory + last->in_offset;
        if (last->uses_send && last->uses_recv &&
            (out - in < last->in_bytes || in - out < last->out_bytes))
            return false; /* the buffers overlap */
    }
    last->call.in = last->uses_send ? (const void *)in : NULL;
    last->call.out = last->uses_recv ? (void *)out : NULL;
    return true;
}

/* Runs a blocking call if it repeats the previous one. False: nothing was done. */
static bool fast_call_run(struct disti_args *args, int *code_p)
{
    struct fast_call *last = fast_calls ? &fast_calls[args->kind] : NULL;

    if (!last || !fast_call_matches(last, args) || !fast_call_set_addresses(last, args))
        return false;
    if (last->comparison && disti_compare(args, last->comparison) != DISTI_WHY_SERVED) {
        args->comparison = NULL; /* the full path compares again */
        return false;
    }
    last->call.comm->calls++;
    disti_report_count(args->kind, DISTI_BLOCKING, DISTI_WHY_SERVED);
    *code_p = call_run(&last->call, NULL);
    return true;
}

/* ---- storing a call ---- */

static void fast_call_store_counts(struct fast_call *last, int ranks)
{
    struct disti_layout *send = &last->call.send, *recv = &last->call.recv;
    struct disti_numbers *const given[] = {&last->send.counts, &last->send.displs,
                                           &last->recv.counts, &last->recv.displs};
    /* A reduction has only counts, which use the first row. */
    size_t **const passed[] = {last->call.counts ? &last->call.counts : &send->sizes,
                               &send->offsets, &recv->sizes, &recv->offsets};

    for (int i = 0; i < 4; i++) {
        if (given[i]->array) {
            memcpy(last->given[i], given[i]->array, (size_t)ranks * given[i]->bytes);
            given[i]->array = last->given[i];
        }
        if (*passed[i]) {
            memcpy(last->passed[i], *passed[i], (size_t)ranks * sizeof(*last->passed[i]));
            *passed[i] = last->passed[i];
        }
    }
    send->displacements = recv->displacements = NULL;
}

/* Returns the offset from the program's buffer to the memory passed to libdist. */
static uintptr_t fast_call_offset(const struct disti_layout *layout)
{
    return layout->blocks ? (uintptr_t)layout->bytes - (uintptr_t)layout->memory : 0;
}

void disti_fast_call_store(const struct disti_args *args, const struct disti_call *call)
{
    struct fast_call *last = fast_calls ? fast_calls : fast_calls_make();
    bool counted = call->counts || call->send.sizes || call->recv.sizes;

    if (!last)
        return;
    last += args->kind;
    last->known = last->sends = last->receives = last->uses_send = last->uses_recv = false;
    if (call->temporary || !call->send.contiguous || !call->recv.contiguous ||
        (counted && call->comm->ranks > FAST_CALL_RANKS))
        return;
    last->comm = args->comm;
    last->op = args->op;
    last->root = args->root;
    last->send = args->send;
    last->recv = args->recv;
    last->call = *call;
    last->counted = counted;
    last->freed = disti_comms_freed();
    last->comparison = disti_comparison_find(args, call->comm);
    if (disti_algorithm_reduces(args->kind)) {
        size_t element = dist_dtype_size(call->reduction.dtype), in = call->count,
               out = call->count;

        if (call->kind == DIST_COLL_REDUCE_SCATTER)
            in *= (size_t)call->comm->ranks;
        for (int r = 0; call->counts && r < call->comm->ranks; r++)
            in += call->counts[r];
        if (call->counts)
            out = call->counts[call->comm->rank];
        last->receives = true; /* recv describes both sides */
        last->uses_send = true;
        last->uses_recv = call->out;
        last->in_offset = last->out_offset = 0;
        last->in_bytes = in * element;
        last->out_bytes = out * element;
        last->known = true;
    } else {
        const struct disti_layout *send = &call->send, *recv = &call->recv;

        last->sends = last->uses_send = send->blocks > 0;
        last->receives = last->uses_recv = recv->blocks > 0;
        last->in_offset = fast_call_offset(send);
        last->out_offset = fast_call_offset(recv);
        last->in_bytes = layout_span(send);
        last->out_bytes = layout_span(recv);
        last->known = args->send.memory != MPI_IN_PLACE && args->recv.memory != MPI_IN_PLACE &&
                      (!last->sends || type_is_last(args->send.type)) &&
                      (!last->receives || type_is_last(args->recv.type));
    }
    if (counted)
        fast_call_store_counts(last, call->comm->ranks);
}

/* Defines MPI's collectives from the table: blocking, nonblocking and persistent. */

#define COLLECTIVES_UNWRAP(...) __VA_ARGS__
#define COLLECTIVES_ARGS(KIND, fields)                                                             \
    struct disti_args args;                                                                        \
                                                                                                   \
    disti_args_clear(&args, DIST_COLL_##KIND, comm);                                               \
    COLLECTIVES_UNWRAP fields

#define COLLECTIVES_BLOCKING(KIND, name, suffix, parameters, arguments, fields)                    \
    int MPI_##name##suffix(COLLECTIVES_UNWRAP parameters)                                          \
    {                                                                                              \
        struct disti_comm *served;                                                                 \
        int code;                                                                                  \
        COLLECTIVES_ARGS(KIND, fields);                                                            \
                                                                                                   \
        if (!fast_call_run(&args, &code)) {                                                        \
            served = call_check(&args, DISTI_BLOCKING);                                            \
            code = served ? disti_serve(&args, served)                                             \
                          : call_forwarded(&args, PMPI_##name##suffix arguments);                  \
        }                                                                                          \
        if (args.comparison)                                                                       \
            disti_compare_end(&args);                                                              \
        return code;                                                                               \
    }

#define COLLECTIVES_NONBLOCKING(KIND, begin, suffix, parameters, arguments, fields)                \
    int MPI_##begin##suffix(COLLECTIVES_UNWRAP parameters, MPI_Request *request)                   \
    {                                                                                              \
        struct disti_comm *served;                                                                 \
        COLLECTIVES_ARGS(KIND, fields);                                                            \
                                                                                                   \
        args.request = request;                                                                    \
        served = call_check(&args, DISTI_NONBLOCKING);                                             \
        return served ? disti_serve_nonblocking(&args, served, request)                            \
                      : call_forwarded(                                                            \
                            &args, PMPI_##begin##suffix(COLLECTIVES_UNWRAP arguments, request));   \
    }

#define COLLECTIVES_PERSISTENT(KIND, prefix, name, suffix, parameters, arguments, fields)          \
    int prefix##name##suffix(COLLECTIVES_UNWRAP parameters, MPI_Info info, MPI_Request *request)   \
    {                                                                                              \
        struct disti_comm *served;                                                                 \
        COLLECTIVES_ARGS(KIND, fields);                                                            \
                                                                                                   \
        args.request = request;                                                                    \
        served = call_check(&args, DISTI_PERSISTENT);                                              \
        return served ? disti_serve_persistent(&args, served, request)                             \
                      : call_forwarded(&args, P##prefix##name##suffix(                             \
                                                  COLLECTIVES_UNWRAP arguments, info, request));   \
    }

#define COLLECTIVES_BOTH(KIND, name, begin, parameters, arguments, fields)                         \
    COLLECTIVES_BLOCKING(KIND, name, , parameters, arguments, fields)                              \
    COLLECTIVES_NONBLOCKING(KIND, begin, , parameters, arguments, fields)
DISTI_CALLS(COLLECTIVES_BOTH, int, int)

#if DISTI_MPI_PERSISTENT
#define COLLECTIVES_INIT(KIND, name, begin, parameters, arguments, fields)                         \
    COLLECTIVES_PERSISTENT(KIND, MPI_, name, _init, parameters, arguments, fields)
DISTI_CALLS(COLLECTIVES_INIT, int, int)
#endif

#if MPI_VERSION >= 4
#define COLLECTIVES_LARGE(KIND, name, begin, parameters, arguments, fields)                        \
    COLLECTIVES_BLOCKING(KIND, name, _c, parameters, arguments, fields)                            \
    COLLECTIVES_NONBLOCKING(KIND, begin, _c, parameters, arguments, fields)                        \
    COLLECTIVES_PERSISTENT(KIND, MPI_, name, _init_c, parameters, arguments, fields)
DISTI_CALLS_COUNTED(COLLECTIVES_LARGE, MPI_Count, MPI_Aint)
#endif

#ifdef OMPI_HAVE_MPI_EXT_PCOLLREQ
#define COLLECTIVES_EXT(KIND, name, begin, parameters, arguments, fields)                          \
    COLLECTIVES_PERSISTENT(KIND, MPIX_, name, _init, parameters, arguments, fields)
DISTI_CALLS(COLLECTIVES_EXT, int, int)
#endif
