/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Part of the MPI test program: collectives that only move data, with types that differ between
 * ranks.
 */
#include "preload_program.h"

#include <stdlib.h>

/*
 * Data are pairs of integers: two elements of MPI_INT (plain), or one element of a derived type:
 *
 *    plain    | a | b |           contiguous: the same in one element
 *    gapped   | a |   | b |   |
 *    turned   | b | a |           (packed as a, b)
 */
enum layout { PLAIN, CONTIGUOUS, GAPPED, TURNED, LAYOUTS };

static MPI_Datatype movers_types[LAYOUTS];
static bool movers_long;

/* A buffer; integers that were not written are -1. */
struct buffer {
    enum layout layout;
    int *data;
    size_t size; /* integers */
};

static void movers_make_types(void)
{
    const int turned[2] = {1, 0};
    MPI_Datatype gapped;

    movers_types[PLAIN] = MPI_INT;
    MPI_Type_contiguous(2, MPI_INT, &movers_types[CONTIGUOUS]);
    MPI_Type_vector(2, 1, 2, MPI_INT, &gapped);
    MPI_Type_create_resized(gapped, 0, 4 * sizeof(int), &movers_types[GAPPED]);
    MPI_Type_free(&gapped);
    MPI_Type_create_indexed_block(2, 1, turned, MPI_INT, &movers_types[TURNED]);
    for (int l = CONTIGUOUS; l < LAYOUTS; l++)
        MPI_Type_commit(&movers_types[l]);
}

static void movers_free_types(void)
{
    for (int l = CONTIGUOUS; l < LAYOUTS; l++)
        MPI_Type_free(&movers_types[l]);
}

/* Returns the number of elements for that number of pairs. */
static int movers_count(const struct buffer *buffer, int pairs)
{
    return buffer->layout == PLAIN ? 2 * pairs : pairs;
}

static MPI_Datatype movers_type(const struct buffer *buffer)
{
    return movers_types[buffer->layout];
}

/* Returns the address of integer k after `pair` pairs. */
static int *movers_at(const struct buffer *buffer, int pair, int k)
{
    pair += k / 2;
    k %= 2;
    if (buffer->layout == GAPPED)
        return &buffer->data[4 * pair + 2 * k];
    return &buffer->data[2 * pair + (buffer->layout == TURNED ? 1 - k : k)];
}

/* Open MPI 4.1 selects algorithms for long blocks by each rank's own types, and hangs if they
 * differ. */
static int movers_mixes(const struct place *place, int shift)
{
    return movers_long && !program_bold ? 0 : place->rank + shift;
}

static struct buffer movers_buffer(const struct place *place, int shift, int pairs)
{
    struct buffer buffer = {.layout = (enum layout)(movers_mixes(place, shift) % LAYOUTS)};

    buffer.size = 4 * (size_t)pairs + 4;
    buffer.data = malloc(buffer.size * sizeof(int));
    return buffer;
}

static void movers_clear(const struct buffer *buffer)
{
    for (size_t i = 0; i < buffer->size; i++)
        buffer->data[i] = -1;
}

/* Returns integer k that rank `from` sends to rank `to`. */
static int movers_value(int from, int to, int k)
{
    return from * 1000003 + to * 10007 + k;
}

static void movers_put(const struct buffer *buffer, int pair, int pairs, int from, int to)
{
    for (int k = 0; k < 2 * pairs; k++)
        *movers_at(buffer, pair, k) = movers_value(from, to, k);
}

/* Checks a block and clears it; at the end the whole buffer must be clear. */
static void movers_check(const struct place *place, const char *what, const struct buffer *buffer,
                         int pair, int pairs, int from, int to)
{
    for (int k = 0; k < 2 * pairs; k++) {
        int *at = movers_at(buffer, pair, k);

        if (*at != movers_value(from, to, k)) {
            program_wrong(place, "%s: integer %d from rank %d to %d is %d, not %d", what, k, from,
                          to, *at, movers_value(from, to, k));
            return;
        }
        program_hash(at, sizeof(*at));
        *at = -1;
    }
}

static void movers_end(const struct place *place, const char *what, const struct buffer *buffer)
{
    for (size_t i = 0; i < buffer->size; i++) {
        if (buffer->data[i] != -1) {
            program_wrong(place, "%s: integer %zu, outside the blocks, has become %d", what, i,
                          buffer->data[i]);
            return;
        }
    }
}

/* ---- arguments that are significant at the root only ---- */

/*
 * Returns an invalid address, which ranks other than the root pass for arguments that are
 * significant at the root only.
 */
static void *movers_invalid(const struct place *place)
{
    return place->form == NONBLOCKING ? MPI_IN_PLACE : (void *)16;
}

/* ---- blocks of equal size ---- */

static void movers_broadcast(const struct place *place, int pairs, int root)
{
    struct buffer buffer = movers_buffer(place, root, pairs);

    PROGRAM_CALL(
        place,
        {
            movers_clear(&buffer);
            if (place->rank == root)
                movers_put(&buffer, 0, pairs, root, 0);
        },
        Bcast, Ibcast, buffer.data, movers_count(&buffer, pairs), movers_type(&buffer), root,
        place->comm);
    movers_check(place, "bcast", &buffer, 0, pairs, root, 0);
    movers_end(place, "bcast", &buffer);
    free(buffer.data);
}

/* Checks a gather; root -1: allgather. */
static void movers_gather(const struct place *place, int pairs, int root, bool in_place)
{
    const char *what = root < 0 ? "allgather" : "gather";
    bool gets = root < 0 || place->rank == root, own = in_place && gets;
    struct buffer in = movers_buffer(place, root + 1, pairs);
    struct buffer out = movers_buffer(place, root + 2, gets ? pairs * place->ranks : 0);
    const void *from = own ? MPI_IN_PLACE : in.data;
    int garbage = gets ? movers_count(&out, pairs) : -77; /* only significant at root */

#define FILL                                                                                       \
    {                                                                                              \
        movers_clear(&out);                                                                        \
        movers_put(own ? &out : &in, own ? place->rank *pairs : 0, pairs, place->rank, 0);         \
    }
    if (root < 0)
        PROGRAM_CALL(place, FILL, Allgather, Iallgather, from, movers_count(&in, pairs),
                     movers_type(&in), out.data, garbage, movers_type(&out), place->comm);
    else
        PROGRAM_CALL(place, FILL, Gather, Igather, from, movers_count(&in, pairs), movers_type(&in),
                     gets ? out.data : movers_invalid(place), garbage,
                     gets ? movers_type(&out) : MPI_DATATYPE_NULL, root, place->comm);
#undef FILL
    for (int r = 0; gets && r < place->ranks; r++)
        movers_check(place, what, &out, r * pairs, pairs, r, 0);
    movers_end(place, what, &out);
    free(in.data);
    free(out.data);
}

static void movers_scatter(const struct place *place, int pairs, int root, bool in_place)
{
    bool gives = place->rank == root, own = in_place && gives;
    struct buffer in = movers_buffer(place, root, gives ? pairs * place->ranks : 0);
    struct buffer out = movers_buffer(place, root + 3, pairs);

    PROGRAM_CALL(
        place,
        {
            movers_clear(&out);
            for (int r = 0; gives && r < place->ranks; r++)
                movers_put(&in, r * pairs, pairs, root, r);
        },
        Scatter, Iscatter, gives ? in.data : movers_invalid(place),
        gives ? movers_count(&in, pairs) : -5, gives ? movers_type(&in) : MPI_DATATYPE_NULL,
        own ? MPI_IN_PLACE : out.data, movers_count(&out, pairs), movers_type(&out), root,
        place->comm);
    movers_check(place, "scatter", own ? &in : &out, own ? root * pairs : 0, pairs, root,
                 place->rank);
    movers_end(place, "scatter", &out);
    free(in.data);
    free(out.data);
}

static void movers_exchange(const struct place *place, int pairs, bool in_place)
{
    struct buffer in = movers_buffer(place, 1, pairs * place->ranks);
    struct buffer out = movers_buffer(place, 2, pairs * place->ranks);

    PROGRAM_CALL(
        place,
        {
            movers_clear(&out);
            for (int r = 0; r < place->ranks; r++)
                movers_put(in_place ? &out : &in, r * pairs, pairs, place->rank, r);
        },
        Alltoall, Ialltoall, in_place ? MPI_IN_PLACE : in.data, movers_count(&in, pairs),
        movers_type(&in), out.data, movers_count(&out, pairs), movers_type(&out), place->comm);
    for (int r = 0; r < place->ranks; r++)
        movers_check(place, "alltoall", &out, r * pairs, pairs, r, place->rank);
    movers_end(place, "alltoall", &out);
    free(in.data);
    free(out.data);
}

/* ---- blocks of different sizes, in reverse order, with gaps, around a base in the middle ---- */

struct spread {
    int pairs[64], at[64]; /* number and position of each rank's pairs */
    int counts[64], displs[64];
    int base, all;
};

/* Computes counts and displacements of blocks; the displacement of an empty block is arbitrary. */
static void movers_spread(const struct place *place, const struct buffer *buffer,
                          const int pairs[64], struct spread *spread)
{
    *spread = (struct spread){0};
    for (int r = place->ranks - 1; r >= 0; r--) {
        spread->pairs[r] = pairs[r];
        spread->at[r] = spread->all;
        spread->all += pairs[r] + 1;
    }
    /* MPICH 4.0 ignores displacements in some calls. */
    spread->base = program_bold ? spread->all / 2 : 0;
    for (int r = 0; r < place->ranks && buffer; r++) {
        spread->counts[r] = movers_count(buffer, pairs[r]);
        spread->displs[r] =
            pairs[r] ? movers_count(buffer, 1) * (spread->at[r] - spread->base) : 123456789;
    }
}

static int *movers_base(const struct buffer *buffer, const struct spread *spread)
{
    return buffer->data + (buffer->layout == GAPPED ? 4 : 2) * spread->base;
}

static int movers_size(int pairs, int from, int to)
{
    return pairs ? (pairs + 3 * from + 5 * to) % (pairs + 4) : (from + to) % 3;
}

/* Checks a gatherv; root -1: allgatherv. */
static void movers_gather_v(const struct place *place, int pairs, int root, bool in_place)
{
    const char *what = root < 0 ? "allgatherv" : "gatherv";
    bool gets = root < 0 || place->rank == root, own = in_place && gets;
    int sizes[64] = {0}, mine = movers_size(pairs, place->rank, 0);
    struct buffer in = movers_buffer(place, root + 1, mine), out;
    struct spread spread;
    const void *from = own ? MPI_IN_PLACE : in.data;

    for (int r = 0; r < place->ranks; r++)
        sizes[r] = movers_size(pairs, r, 0);
    movers_spread(place, NULL, sizes, &spread);
    out = movers_buffer(place, root + 2, gets ? spread.all : 0);
    movers_spread(place, &out, sizes, &spread);
#define FILL                                                                                       \
    {                                                                                              \
        movers_clear(&out);                                                                        \
        movers_put(own ? &out : &in, own ? spread.at[place->rank] : 0, mine, place->rank, 0);      \
    }
    if (root < 0)
        PROGRAM_CALL(place, FILL, Allgatherv, Iallgatherv, from, movers_count(&in, mine),
                     movers_type(&in), movers_base(&out, &spread), spread.counts, spread.displs,
                     movers_type(&out), place->comm);
    else
        PROGRAM_CALL(place, FILL, Gatherv, Igatherv, from, movers_count(&in, mine),
                     movers_type(&in), gets ? movers_base(&out, &spread) : movers_invalid(place),
                     gets ? spread.counts : movers_invalid(place),
                     gets ? spread.displs : movers_invalid(place),
                     gets ? movers_type(&out) : MPI_DATATYPE_NULL, root, place->comm);
#undef FILL
    for (int r = 0; gets && r < place->ranks; r++)
        movers_check(place, what, &out, spread.at[r], sizes[r], r, 0);
    movers_end(place, what, &out);
    free(in.data);
    free(out.data);
}

static void movers_scatter_v(const struct place *place, int pairs, int root, bool in_place)
{
    bool gives = place->rank == root, own = in_place && gives;
    int sizes[64] = {0}, mine = movers_size(pairs, root, place->rank);
    struct buffer in, out = movers_buffer(place, root + 3, mine);
    struct spread spread;

    for (int r = 0; r < place->ranks; r++)
        sizes[r] = movers_size(pairs, root, r);
    movers_spread(place, NULL, sizes, &spread);
    in = movers_buffer(place, root, gives ? spread.all : 0);
    movers_spread(place, &in, sizes, &spread);
    PROGRAM_CALL(
        place,
        {
            movers_clear(&out);
            for (int r = 0; gives && r < place->ranks; r++)
                movers_put(&in, spread.at[r], sizes[r], root, r);
        },
        Scatterv, Iscatterv, gives ? movers_base(&in, &spread) : movers_invalid(place),
        gives ? spread.counts : movers_invalid(place),
        gives ? spread.displs : movers_invalid(place), gives ? movers_type(&in) : MPI_DATATYPE_NULL,
        own ? MPI_IN_PLACE : out.data, movers_count(&out, mine), movers_type(&out), root,
        place->comm);
    movers_check(place, "scatterv", own ? &in : &out, own ? spread.at[root] : 0, mine, root,
                 place->rank);
    movers_end(place, "scatterv", &out);
    free(in.data);
    free(out.data);
}

/* In place, both directions have the same sizes. */
static void movers_exchange_v(const struct place *place, int pairs, bool in_place)
{
    int gives[64] = {0}, gets[64] = {0};
    struct spread out_spread, in_spread;
    struct buffer in, out;

    for (int r = 0; r < place->ranks; r++) {
        int low = r < place->rank ? r : place->rank, high = r < place->rank ? place->rank : r;

        gives[r] = in_place ? movers_size(pairs, low, high) : movers_size(pairs, place->rank, r);
        gets[r] = in_place ? movers_size(pairs, low, high) : movers_size(pairs, r, place->rank);
    }
    movers_spread(place, NULL, gives, &in_spread);
    movers_spread(place, NULL, gets, &out_spread);
    in = movers_buffer(place, 3, in_spread.all);
    out = movers_buffer(place, 1, out_spread.all);
    movers_spread(place, &in, gives, &in_spread);
    movers_spread(place, &out, gets, &out_spread);
    PROGRAM_CALL(
        place,
        {
            movers_clear(&out);
            for (int r = 0; r < place->ranks; r++)
                movers_put(in_place ? &out : &in, in_place ? out_spread.at[r] : in_spread.at[r],
                           gives[r], place->rank, r);
        },
        Alltoallv, Ialltoallv, in_place ? MPI_IN_PLACE : (void *)movers_base(&in, &in_spread),
        in_spread.counts, in_spread.displs, movers_type(&in), movers_base(&out, &out_spread),
        out_spread.counts, out_spread.displs, movers_type(&out), place->comm);
    for (int r = 0; r < place->ranks; r++)
        movers_check(place, "alltoallv", &out, out_spread.at[r], gets[r], r, place->rank);
    movers_end(place, "alltoallv", &out);
    free(in.data);
    free(out.data);
}

void program_movers(const struct place *place, int pairs)
{
    movers_long = pairs > 100;
    movers_make_types();
    PROGRAM_CALL(place, (void)0, Barrier, Ibarrier, place->comm);
    for (int in_place = 0; in_place < 2; in_place++) {
        movers_gather(place, pairs, -1, in_place);
        movers_gather_v(place, pairs, -1, in_place);
        movers_exchange(place, pairs, in_place);
        movers_exchange_v(place, pairs, in_place);
    }
    for (int root = 0; root < place->ranks; root++) {
        bool in_place = root % 2;

        program_gaps(place, root);
        movers_broadcast(place, pairs, root);
        movers_gather(place, pairs, root, in_place);
        movers_gather_v(place, pairs, root, !in_place);
        movers_scatter(place, pairs, root, !in_place);
        movers_scatter_v(place, pairs, root, in_place);
    }
    movers_free_types();
}
