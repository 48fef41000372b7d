/* SPDX-License-Identifier: BSD-3-Clause */
/* Native mode: calls that MPI's own nonblocking collectives execute. */
#include "backends/mpi/native.h"
#include "base/collective.h"
#include "base/kernels/environment.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Returns MPI's type, or MPI_DATATYPE_NULL if there is none with the same semantics. */
static MPI_Datatype native_type(dist_dtype dtype)
{
    static const MPI_Datatype types[DIST_DTYPE_COUNT] = {
#define DTYPE(name, kernels, exponent, special, mpi, nccl) [DIST_##name] = MPI_##mpi,
#include "base/dtypes.def"
#undef DTYPE
    };

    return (unsigned)dtype < DIST_DTYPE_COUNT ? types[dtype] : MPI_DATATYPE_NULL;
}

static bool native_is_float(dist_dtype dtype)
{
    return dtype == DIST_FLOAT32 || dtype == DIST_FLOAT64;
}

/*
 * Returns MPI's operation, or MPI_OP_NULL. AVG is supported for float types only: MPI computes the
 * sum, and native_average() divides it. PREMUL_SUM and USER use plans.
 */
static MPI_Op native_op(dist_op op, dist_dtype dtype)
{
    static const MPI_Op ops[DIST_OP_COUNT] = {
#define OP(name, mpi, nccl) [DIST_##name] = MPI_##mpi,
#include "base/dtypes.def"
#undef OP
    };

    if ((unsigned)op >= DIST_OP_COUNT || (op == DIST_AVG && !native_is_float(dtype)))
        return MPI_OP_NULL;
    return ops[op];
}

/*
 * True if MPI can do the reduction. The following use plans:
 *
 *   - 8-bit integers: Open MPI 4.1 saturates them on CPUs with AVX and wraps on other CPUs
 *   - minima and maxima of unsigned integers: MPICH 4.0 compares them as signed
 *   - minima and maxima of floats: MPI does not define them for NaN and for zeros of both signs;
 *     they depend on the order of the operands, and with MPICH on the rank
 */
static bool native_can_reduce(const struct disti_native *native, const struct dist_call *call)
{
    bool wide_unsigned = call->dtype == DIST_UINT32 || call->dtype == DIST_UINT64;
    bool compares = call->op == DIST_MIN || call->op == DIST_MAX;

    return native_type(call->dtype) != MPI_DATATYPE_NULL &&
           native_op(call->op, call->dtype) != MPI_OP_NULL && call->dtype != DIST_INT8 &&
           call->dtype != DIST_UINT8 &&
           !(compares && (wide_unsigned || native_is_float(call->dtype))) &&
           !(native->reproducible && /* MPI does not guarantee the order of additions */
             native_is_float(call->dtype) &&
             (call->op == DIST_SUM || call->op == DIST_AVG || call->op == DIST_PROD));
}

/*
 * True if the number of bytes fits an int. MPI limits only the number of elements, but MPICH 4.0
 * fails to broadcast more bytes than that, and other versions and collectives have had similar
 * bugs.
 */
static bool native_fits(const struct disti_native *native, const struct dist_call *call,
                        size_t blocks)
{
    return call->count <= (size_t)INT_MAX / native->host->dtype_size(call->dtype) / blocks;
}

static bool native_all_fit(const struct disti_native *native, const struct dist_call *call,
                           const size_t *counts)
{
    size_t left = (size_t)INT_MAX / native->host->dtype_size(call->dtype);

    for (int r = 0; r < native->ranks; r++) {
        if (counts[r] > left)
            return false;
        left -= counts[r];
    }
    return true;
}

bool disti_native_supports(const struct disti_native *native, const struct dist_call *call)
{
    const struct disti_collective *traits = &disti_collectives[call->collective];
    const bool each = traits->in == DISTI_BLOCKS_EACH || traits->out == DISTI_BLOCKS_EACH;

    /* A single rank uses plans: they only copy, and MPICH 4.0's Iallgatherv ignores the offset. */
    if (native->ranks == 1 || disti_collective_pair(call->collective) ||
        call->collective == DIST_COLL_GATHER_V || call->collective == DIST_COLL_SCATTER_V ||
        (disti_algorithm_reduces(call->collective) && !native_can_reduce(native, call)))
        return false;
    if (call->collective == DIST_COLL_BARRIER || call->collective == DIST_COLL_ALL_TO_ALL_V)
        return true;
    if (traits->counts == DISTI_COUNTS_LISTED)
        return native_all_fit(native, call,
                              disti_algorithm_reduces(call->collective) ? call->in_counts
                                                                        : call->out_counts);
    return native_fits(native, call, each ? (size_t)native->ranks : 1);
}

static void native_free(struct disti_native_call *c)
{
    free(c->arrays);
    free(c->stage);
    free(c);
}

/* MPI cannot cancel a collective, so its request and the memory that MPI uses are leaked. */
void disti_native_drop(struct disti_native *native)
{
    while (native->calls) {
        struct disti_native_call *c = native->calls;

        native->calls = c->next;
        free(c);
    }
}

/* ---- memory ---- */

/* MPI's in-place reduce-scatter stores the result at the beginning and overwrites the other blocks,
 * whereas libdist's stores it in the rank's block and keeps the other blocks. MPI's offsets are
 * ints. */
bool disti_native_stages(const struct disti_native *native, const struct dist_call *call,
                         size_t *count_p)
{
    size_t own = (size_t)native->rank;
    bool large = false;

    switch (call->collective) {
    case DIST_COLL_REDUCE_SCATTER:
        *count_p = call->count;
        return call->out == disti_native_element(native, call, call->in, own * call->count);
    case DIST_COLL_REDUCE_SCATTER_V:
        *count_p = call->in_counts[own];
        return call->out == disti_native_element(native, call, call->in, call->in_offsets[own]);
    case DIST_COLL_ALL_GATHER_V:
        *count_p = 0;
        for (int r = 0; r < native->ranks; r++) {
            *count_p += call->out_counts[r];
            /* True if a block's offset in bytes exceeds an int. */
            large |= call->out_offsets[r] > (size_t)INT_MAX / native->host->dtype_size(call->dtype);
        }
        return large;
    default:
        return false;
    }
}

/* Allocates the memory that the call needs besides the program's. ERR_NO_MEMORY. */
static dist_status native_allocate(const struct disti_native *native, struct disti_native_call *c)
{
    const struct dist_call *call = &c->call;
    size_t ranks = (size_t)native->ranks, count = 0;
    MPI_Datatype *types;
    int *numbers;

    if (call->collective == DIST_COLL_ALL_GATHER_V ||
        call->collective == DIST_COLL_REDUCE_SCATTER_V ||
        call->collective == DIST_COLL_ALL_TO_ALL_V) {
        c->arrays = malloc(2 * ranks * (sizeof(MPI_Datatype) + 2 * sizeof(int)));
        if (!c->arrays)
            return native->host->fail(DIST_ERR_NO_MEMORY, "no memory for %d counts", native->ranks);
        types = c->arrays;
        numbers = (int *)(types + 2 * ranks);
        c->in = (struct disti_native_blocks){numbers, numbers + ranks, types};
        c->out =
            (struct disti_native_blocks){numbers + 2 * ranks, numbers + 3 * ranks, types + ranks};
    }
    if (disti_native_stages(native, call, &count)) {
        c->stage = malloc(disti_native_bytes(native, call, count) + 1); /* + 1: not NULL if empty */
        if (!c->stage)
            return native->host->fail(DIST_ERR_NO_MEMORY, "no memory for a copy of %zu elements",
                                      count);
    }
    return DIST_OK;
}

/* Copies MPI's result from the stage to its final place. */
static void native_copy_stage(const struct disti_native *native, const struct disti_native_call *c)
{
    const struct dist_call *call = &c->call;
    size_t count = 0, at = 0;

    if (!c->stage || !call->out)
        return;
    disti_native_stages(native, call, &count);
    if (call->collective != DIST_COLL_ALL_GATHER_V) {
        memcpy(call->out, c->stage, disti_native_bytes(native, call, count));
        return;
    }
    for (int r = 0; r < native->ranks; r++) {
        memcpy(disti_native_element(native, call, call->out, call->out_offsets[r]),
               disti_native_element(native, call, c->stage, at),
               disti_native_bytes(native, call, call->out_counts[r]));
        at += call->out_counts[r];
    }
}

/* ---- starting a call ---- */

/*
 * Return the address to pass to MPI for a buffer of which MPI uses `bytes` bytes: the program's, or
 * a dummy if bytes is 0. For an empty buffer the program may pass any address, including the
 * address of the other buffer (which Open MPI takes as in-place and MPICH rejects) or MPI_IN_PLACE.
 */
static const void *native_in(const void *in, size_t bytes)
{
    static const char nothing;

    return bytes ? in : &nothing;
}

static void *native_out(void *out, size_t bytes)
{
    static char nothing;

    return bytes ? out : &nothing;
}

bool disti_native_copies_own(const struct disti_native *native, const struct dist_call *call)
{
    size_t own = (size_t)native->rank;

    switch (call->collective) {
    case DIST_COLL_ALL_REDUCE:
        return call->in != call->out;
    case DIST_COLL_ALL_GATHER:
        return call->in != disti_native_element(native, call, call->out, own * call->count);
    case DIST_COLL_ALL_GATHER_V:
        return call->in != disti_native_element(native, call, call->out, call->out_offsets[own]);
    default:
        return false;
    }
}

/*
 * Copies this rank's part to its place in OUT, unless it is there. MPI requires MPI_IN_PLACE on all
 * ranks or on none, and a rank knows only its own buffers, so all ranks use MPI_IN_PLACE.
 */
static void native_copy_own(void *to, const void *from, size_t bytes)
{
    if (to != from && bytes)
        memcpy(to, from, bytes);
}

static int native_start_reduction(const struct disti_native *native, struct disti_native_call *c)
{
    const struct dist_call *call = &c->call;
    MPI_Datatype type = native_type(call->dtype);
    MPI_Op op = native_op(call->op, call->dtype);
    size_t bytes = disti_native_bytes(native, call, call->count);
    int count = (int)call->count;
    bool root = native->rank == call->root, in_place = root && bytes && call->in == call->out;
    const void *in = native_in(call->in, bytes);
    void *out = native_out(call->out, bytes);

    switch (call->collective) {
    case DIST_COLL_ALL_REDUCE:
        native_copy_own(out, call->in, bytes);
        return MPI_Iallreduce(MPI_IN_PLACE, out, count, type, op, native->comm, &c->request);
    case DIST_COLL_REDUCE:
        out = root ? out : native_out(NULL, 0);
        return MPI_Ireduce(in_place ? MPI_IN_PLACE : in, out, count, type, op, call->root,
                           native->comm, &c->request);
    default:
        return MPI_Ireduce_scatter_block(in, c->stage ? c->stage : out, count, type, op,
                                         native->comm, &c->request);
    }
}

static int native_start_move(const struct disti_native *native, struct disti_native_call *c)
{
    const struct dist_call *call = &c->call;
    size_t bytes = disti_native_bytes(native, call, call->count), own = native->rank * bytes;
    const char *in = native_in(call->in, bytes);
    char *out = native_out(call->out, bytes);
    int n = (int)bytes;
    bool root = native->rank == call->root;

    switch (call->collective) {
    case DIST_COLL_BROADCAST:
        return MPI_Ibcast(out, n, MPI_BYTE, call->root, native->comm, &c->request);
    case DIST_COLL_ALL_GATHER:
        native_copy_own(out + own, in, bytes);
        return MPI_Iallgather(MPI_IN_PLACE, n, MPI_BYTE, out, n, MPI_BYTE, native->comm,
                              &c->request);
    case DIST_COLL_GATHER:
        out = root ? out : native_out(NULL, 0);
        return MPI_Igather(root && in == out + own ? MPI_IN_PLACE : in, n, MPI_BYTE, out, n,
                           MPI_BYTE, call->root, native->comm, &c->request);
    case DIST_COLL_SCATTER:
        in = root ? in : native_in(NULL, 0);
        return MPI_Iscatter(in, n, MPI_BYTE, root && out == in + own ? MPI_IN_PLACE : out, n,
                            MPI_BYTE, call->root, native->comm, &c->request);
    default:
        return MPI_Ialltoall(in, n, MPI_BYTE, out, n, MPI_BYTE, native->comm, &c->request);
    }
}

/* ---- _v calls: MPI's counts and offsets are ints ---- */

#define NATIVE_RUN ((size_t)1 << 30) /* bytes per run in native_large_type */

static int native_all_gather_v(const struct disti_native *native, struct disti_native_call *c)
{
    const struct dist_call *call = &c->call;
    size_t own = (size_t)native->rank, at = 0;
    char *out;

    for (int r = 0; r < native->ranks; r++) {
        size_t offset = c->stage ? at : call->out_offsets[r];

        c->out.counts[r] = (int)disti_native_bytes(native, call, call->out_counts[r]);
        c->out.offsets[r] = (int)disti_native_bytes(native, call, offset);
        at += call->out_counts[r];
    }
    out = c->stage ? (char *)c->stage : native_out(call->out, at);
    native_copy_own(out + c->out.offsets[own], call->in, (size_t)c->out.counts[own]);
    return MPI_Iallgatherv(MPI_IN_PLACE, c->out.counts[own], MPI_BYTE, out, c->out.counts,
                           c->out.offsets, MPI_BYTE, native->comm, &c->request);
}

static int native_reduce_scatter_v(const struct disti_native *native, struct disti_native_call *c)
{
    const struct dist_call *call = &c->call;
    void *out = native_out(call->out, call->in_counts[native->rank]);
    size_t all = 0;

    for (int r = 0; r < native->ranks; r++) {
        c->in.counts[r] = (int)call->in_counts[r];
        all += call->in_counts[r];
    }
    return MPI_Ireduce_scatter(native_in(call->in, all), c->stage ? c->stage : out, c->in.counts,
                               native_type(call->dtype), native_op(call->op, call->dtype),
                               native->comm, &c->request);
}

/*
 * Creates a type of which one element is a whole block, of any size at any offset. Since MPI's
 * counts are ints, the type is composed of runs of NATIVE_RUN bytes and the remaining bytes. MPI
 * still transfers the block as a single element.
 */
static int native_large_type(size_t offset, size_t bytes, MPI_Datatype *type_p)
{
    size_t runs = bytes / NATIVE_RUN, whole = runs * NATIVE_RUN;
    MPI_Datatype run = MPI_DATATYPE_NULL;
    MPI_Datatype parts[2] = {MPI_DATATYPE_NULL, MPI_DATATYPE_NULL};
    MPI_Aint places[2] = {(MPI_Aint)offset, (MPI_Aint)(offset + whole)};
    int ones[2] = {1, 1};
    int code = MPI_Type_contiguous((int)NATIVE_RUN, MPI_BYTE, &run);

    if (code == MPI_SUCCESS)
        code = MPI_Type_contiguous((int)runs, run, &parts[0]);
    if (code == MPI_SUCCESS)
        code = MPI_Type_contiguous((int)(bytes - whole), MPI_BYTE, &parts[1]);
    if (code == MPI_SUCCESS)
        code = MPI_Type_create_struct(2, ones, places, parts, type_p);
    if (code == MPI_SUCCESS)
        code = MPI_Type_commit(type_p);
    if (run != MPI_DATATYPE_NULL)
        MPI_Type_free(&run);
    for (int i = 0; i < 2; i++) {
        if (parts[i] != MPI_DATATYPE_NULL)
            MPI_Type_free(&parts[i]);
    }
    return code;
}

/* Stores the lowest offset of a nonempty block. Returns false if all blocks are empty. */
static bool native_first(const size_t *counts, const size_t *offsets, int ranks, size_t *first_p)
{
    bool found = false;

    *first_p = 0;
    for (int r = 0; r < ranks; r++) {
        if (!counts[r] || (found && offsets[r] >= *first_p))
            continue;
        *first_p = offsets[r];
        found = true;
    }
    return found;
}

/* Describes the blocks for MPI, with offsets relative to element `first`. */
static int native_describe(const struct disti_native *native, const struct dist_call *call,
                           const size_t *counts, const size_t *offsets, size_t first,
                           struct disti_native_blocks *blocks)
{
    int code = MPI_SUCCESS;

    for (int r = 0; r < native->ranks && code == MPI_SUCCESS; r++) {
        size_t bytes = disti_native_bytes(native, call, counts[r]);
        size_t offset = bytes ? disti_native_bytes(native, call, offsets[r] - first) : 0;
        bool large = bytes > INT_MAX || offset > INT_MAX;

        blocks->types[r] = MPI_BYTE;
        blocks->counts[r] = large ? 1 : (int)bytes;
        blocks->offsets[r] = large ? 0 : (int)offset;
        if (large)
            code = native_large_type(offset, bytes, &blocks->types[r]);
    }
    return code;
}

/* Frees the types created for a call. Caller holds the MPI lock. */
static void native_free_types(const struct disti_native *native, struct disti_native_call *c)
{
    if (c->call.collective != DIST_COLL_ALL_TO_ALL_V)
        return;
    for (int r = 0; r < 2 * native->ranks; r++) { /* the types of IN, then those of OUT */
        MPI_Datatype *type = &c->in.types[r];

        if (*type != MPI_BYTE && *type != MPI_DATATYPE_NULL)
            MPI_Type_free(type);
    }
}

/*
 * Uses MPI_Ialltoallw on all ranks. Only this function has a type per rank, which a rank needs if
 * the size or offset of a block exceeds an int. All ranks must call the same function, and no rank
 * knows the counts of all ranks.
 *
 * in and out may have the same address, with the blocks of one in the gaps of the other, but Open
 * MPI takes equal addresses as in-place. Therefore the addresses of the first blocks are passed,
 * which differ.
 */
static int native_all_to_all_v(const struct disti_native *native, struct disti_native_call *c)
{
    const struct dist_call *call = &c->call;
    size_t in_first, out_first;
    bool sends = native_first(call->in_counts, call->in_offsets, native->ranks, &in_first);
    bool gets = native_first(call->out_counts, call->out_offsets, native->ranks, &out_first);
    const void *in = native_in(disti_native_element(native, call, call->in, in_first), sends);
    void *out = native_out(disti_native_element(native, call, call->out, out_first), gets);
    int code;

    for (int r = 0; r < native->ranks; r++)
        c->in.types[r] = c->out.types[r] = MPI_DATATYPE_NULL;
    code = native_describe(native, call, call->in_counts, call->in_offsets, in_first, &c->in);
    if (code == MPI_SUCCESS)
        code =
            native_describe(native, call, call->out_counts, call->out_offsets, out_first, &c->out);
    if (code == MPI_SUCCESS)
        code = MPI_Ialltoallw(in, c->in.counts, c->in.offsets, c->in.types, out, c->out.counts,
                              c->out.offsets, c->out.types, native->comm, &c->request);
    return code;
}

/* Starts a call. Caller holds the MPI lock. Returns MPI's error code. */
static int native_start_call(const struct disti_native *native, struct disti_native_call *c)
{
    switch (c->call.collective) {
    case DIST_COLL_BARRIER:
        return MPI_Ibarrier(native->comm, &c->request);
    case DIST_COLL_ALL_REDUCE:
    case DIST_COLL_REDUCE:
    case DIST_COLL_REDUCE_SCATTER:
        return native_start_reduction(native, c);
    case DIST_COLL_REDUCE_SCATTER_V:
        return native_reduce_scatter_v(native, c);
    case DIST_COLL_ALL_GATHER_V:
        return native_all_gather_v(native, c);
    case DIST_COLL_ALL_TO_ALL_V:
        return native_all_to_all_v(native, c);
    default:
        return native_start_move(native, c);
    }
}

dist_status disti_native_post(struct disti_native *native, const struct dist_call *call,
                              struct dist_ticket *ticket)
{
    struct disti_native_call *c = calloc(1, sizeof(*c));
    dist_status status;

    if (!c)
        return native->host->fail(DIST_ERR_NO_MEMORY, "no memory to start an MPI collective");
    c->call = *call;
    c->ticket = ticket;
    status = native_allocate(native, c);
    if (status == DIST_OK && disti_mpi_lock()) {
        int code = native_start_call(native, c);

        if (code != MPI_SUCCESS) {
            status = disti_mpi_fail(native->host, native->host->collective_string(call->collective),
                                    code);
            native_free_types(native, c);
        }
        disti_mpi_unlock();
    } else if (status == DIST_OK) {
        status = disti_mpi_ended(native->host);
    }
    if (status != DIST_OK) {
        native_free(c);
        return status;
    }
    c->next = native->calls;
    native->calls = c;
    return DIST_OK;
}

static void native_average(const struct disti_native *native, const struct dist_call *call)
{
    size_t count = call->collective == DIST_COLL_REDUCE_SCATTER_V ? call->in_counts[native->rank]
                   : call->collective == DIST_COLL_REDUCE && native->rank != call->root
                       ? 0
                       : call->count;
    const disti_environment saved = disti_environment_enter();

    if (call->dtype == DIST_FLOAT32) {
        for (size_t i = 0; i < count; i++)
            ((float *)call->out)[i] /= (float)native->ranks;
    } else {
        for (size_t i = 0; i < count; i++)
            ((double *)call->out)[i] /= native->ranks;
    }
    disti_environment_leave(saved);
}

int disti_native_progress(struct disti_native *native)
{
    int moved = 0;

    for (struct disti_native_call **at = &native->calls; *at;) {
        struct disti_native_call *c = *at;
        int done = 0, code;

        if (!disti_mpi_lock())
            return disti_mpi_ended(native->host);
        code = MPI_Test(&c->request, &done, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS)
            done = disti_mpi_fail(native->host, "MPI_Test", code);
        else if (done)
            native_free_types(native, c);
        disti_mpi_unlock();
        if (done < 0)
            return done;
        if (!done) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        native_copy_stage(native, c);
        if (disti_algorithm_reduces(c->call.collective) && c->call.op == DIST_AVG)
            native_average(native, &c->call);
        c->ticket->status = DIST_OK;
        native_free(c);
        moved++;
    }
    return moved;
}
