/* SPDX-License-Identifier: BSD-3-Clause */
/* Part of the MPI test program: reductions with every type and every operation that MPI permits. */
#include "preload_program.h"

#include <complex.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* X(MPI's type, C's type, class): I integers of C, J other integers, F floating, B bytes, L
 * logical. */
#define TYPES(X)                                                                                   \
    X(MPI_SIGNED_CHAR, signed char, 'I')                                                           \
    X(MPI_UNSIGNED_CHAR, unsigned char, 'I')                                                       \
    X(MPI_SHORT, short, 'I')                                                                       \
    X(MPI_UNSIGNED_SHORT, unsigned short, 'I')                                                     \
    X(MPI_INT, int, 'I')                                                                           \
    X(MPI_UNSIGNED, unsigned, 'I')                                                                 \
    X(MPI_LONG, long, 'I')                                                                         \
    X(MPI_UNSIGNED_LONG, unsigned long, 'I')                                                       \
    X(MPI_LONG_LONG, long long, 'I')                                                               \
    X(MPI_UINT64_T, uint64_t, 'I')                                                                 \
    X(MPI_INT16_T, int16_t, 'I')                                                                   \
    X(MPI_AINT, MPI_Aint, 'J')                                                                     \
    X(MPI_COUNT, MPI_Count, 'J')                                                                   \
    X(MPI_INTEGER, int, 'J')                                                                       \
    X(MPI_FLOAT, float, 'F')                                                                       \
    X(MPI_DOUBLE, double, 'F')                                                                     \
    X(MPI_REAL, float, 'F')                                                                        \
    X(MPI_DOUBLE_PRECISION, double, 'F')                                                           \
    X(MPI_BYTE, unsigned char, 'B')                                                                \
    X(MPI_C_BOOL, bool, 'L')                                                                       \
    X(MPI_LOGICAL, int, 'L')

struct type {
    const char *name;
    MPI_Datatype type;
    char class;
    size_t size;
    void (*set)(void *data, int i, int value);
    int (*get)(const void *data, int i);
};

#define ACCESS(mpi, c, class)                                                                      \
    static void set_##mpi(void *data, int i, int value)                                            \
    {                                                                                              \
        ((c *)data)[i] = (c)value;                                                                 \
    }                                                                                              \
    static int get_##mpi(const void *data, int i)                                                  \
    {                                                                                              \
        return (int)((const c *)data)[i];                                                          \
    }
TYPES(ACCESS)

#define ROW(mpi, c, class) {#mpi, mpi, class, sizeof(c), set_##mpi, get_##mpi},

static int reductions_combine(MPI_Op op, int a, int b)
{
    if (op == MPI_SUM)
        return a + b;
    if (op == MPI_PROD)
        return a * b;
    if (op == MPI_MIN)
        return a < b ? a : b;
    if (op == MPI_MAX)
        return a > b ? a : b;
    if (op == MPI_BAND)
        return a & b;
    if (op == MPI_BOR)
        return a | b;
    if (op == MPI_BXOR)
        return a ^ b;
    if (op == MPI_LAND)
        return a && b;
    if (op == MPI_LOR)
        return a || b;
    return !a != !b;
}

/* Returns a small value, so that sums and products over some ranks fit in every type; 0 only for
 * logical operations. */
static int reductions_value(const struct type *type, MPI_Op op, int rank, int i)
{
    bool logical = type->class == 'L' || op == MPI_LAND || op == MPI_LOR || op == MPI_LXOR;

    if (logical)
        return (rank * 7 + i * 3) % 5 < 3;
    return 1 + (rank * 3 + i) % (op == MPI_PROD ? 2 : 6);
}

static int reductions_wanted(const struct place *place, const struct type *type, MPI_Op op, int i)
{
    int all = reductions_value(type, op, 0, i);

    for (int r = 1; r < place->ranks; r++)
        all = reductions_combine(op, all, reductions_value(type, op, r, i));
    return all;
}

static void reductions_fill(const struct place *place, const struct type *type, MPI_Op op,
                            void *data, int count)
{
    for (int i = 0; i < count; i++)
        type->set(data, i, reductions_value(type, op, place->rank, i));
}

/* Checks elements [from, from + count) of the whole result. */
static void reductions_check(const struct place *place, const char *what, const struct type *type,
                             MPI_Op op, const void *data, int from, int count)
{
    for (int i = 0; i < count; i++) {
        int wanted = reductions_wanted(place, type, op, from + i), got = type->get(data, i);

        if (got != wanted) {
            program_wrong(place, "%s of %s: element %d is %d, not %d", what, type->name, from + i,
                          got, wanted);
            return;
        }
    }
    program_hash(data, (size_t)count * type->size);
}

static void reductions_all(const struct place *place, const struct type *type, MPI_Op op, int count,
                           bool in_place)
{
    void *in = malloc((size_t)count * type->size + 1),
         *out = malloc((size_t)count * type->size + 1);

    PROGRAM_CALL(place, reductions_fill(place, type, op, in_place ? out : in, count), Allreduce,
                 Iallreduce, in_place ? MPI_IN_PLACE : in, out, count, type->type, op, place->comm);
    reductions_check(place, "allreduce", type, op, out, 0, count);
    free(in);
    free(out);
}

static void reductions_root(const struct place *place, const struct type *type, MPI_Op op,
                            int count, int root, bool in_place)
{
    bool gets = place->rank == root, own = gets && in_place;
    void *in = malloc((size_t)count * type->size + 1);
    void *out = gets ? malloc((size_t)count * type->size + 1) : NULL;

    PROGRAM_CALL(place, reductions_fill(place, type, op, own ? out : in, count), Reduce, Ireduce,
                 own ? MPI_IN_PLACE : in, gets ? out : (void *)16, count, type->type, op, root,
                 place->comm);
    if (gets)
        reductions_check(place, "reduce", type, op, out, 0, count);
    free(in);
    free(out);
}

/* In place, the result is at the beginning of the buffer. */
static void reductions_block(const struct place *place, const struct type *type, MPI_Op op,
                             int count, bool in_place)
{
    int all = count * place->ranks;
    void *in = malloc((size_t)all * type->size + 1), *out = malloc((size_t)all * type->size + 1);

    PROGRAM_CALL(place, reductions_fill(place, type, op, in_place ? out : in, all),
                 Reduce_scatter_block, Ireduce_scatter_block, in_place ? MPI_IN_PLACE : in, out,
                 count, type->type, op, place->comm);
    reductions_check(place, "reduce_scatter_block", type, op, out, place->rank * count, count);
    free(in);
    free(out);
}

static void reductions_scatter(const struct place *place, const struct type *type, MPI_Op op,
                               int count, bool in_place)
{
    int counts[64], all = 0, from = 0;
    void *in, *out;

    for (int r = 0; r < place->ranks; r++) {
        counts[r] = count ? (count + 2 * r) % (count + 1) : 0;
        from += r < place->rank ? counts[r] : 0;
        all += counts[r];
    }
    in = malloc((size_t)all * type->size + 1);
    out = malloc((size_t)all * type->size + 1);
    PROGRAM_CALL(place, reductions_fill(place, type, op, in_place ? out : in, all), Reduce_scatter,
                 Ireduce_scatter, in_place ? MPI_IN_PLACE : in, out, counts, type->type, op,
                 place->comm);
    reductions_check(place, "reduce_scatter", type, op, out, from, counts[place->rank]);
    free(in);
    free(out);
}

/* Reduces one type with one operation by one of the four calls; `turn` selects the call. */
static void reductions_one(const struct place *place, const struct type *type, MPI_Op op, int count,
                           int turn)
{
    bool in_place = turn / 4 % 2;

    switch (turn % 4) {
    case 0:
        reductions_all(place, type, op, count, in_place);
        break;
    case 1:
        reductions_root(place, type, op, count, turn % place->ranks,
                        in_place && (count < 1000 || program_bold)); /* MPICH 4.0 crashes */
        break;
    case 2:
        reductions_block(place, type, op, count, in_place);
        break;
    default:
        reductions_scatter(place, type, op, count, in_place);
    }
}

/* ---- types of two parts ---- */

static void reductions_complex(const struct place *place)
{
    double complex sum = 0, add = place->rank + 1 + 2 * place->rank * I;
    float complex product = 0, factor = place->rank + 1 + I, wanted = 1;
    double half = place->ranks * (place->ranks - 1) / 2.0;

    PROGRAM_CALL(place, (void)0, Allreduce, Iallreduce, &add, &sum, 1, MPI_C_DOUBLE_COMPLEX,
                 MPI_SUM, place->comm);
    if (sum != half + place->ranks + 2 * half * I)
        program_wrong(place, "sum of complex numbers: %g + %gi", creal(sum), cimag(sum));
    PROGRAM_CALL(place, (void)0, Allreduce, Iallreduce, &factor, &product, 1, MPI_C_FLOAT_COMPLEX,
                 MPI_PROD, place->comm);
    for (int r = 0; r < place->ranks; r++)
        wanted *= r + 1 + I;
    if (product != wanted)
        program_wrong(place, "product of complex numbers: %g + %gi", (double)crealf(product),
                      (double)cimagf(product));
    program_hash(&sum, sizeof(sum));
    program_hash(&product, sizeof(product));
}

/* The minimum, which several ranks have, with the index of the first of them. */
static void reductions_located(const struct place *place)
{
    struct {
        float value;
        int index;
    } in = {(float)((place->ranks - place->rank) / 2), place->rank}, out = {-1, -1};
    struct {
        int value, index;
    } most = {place->rank / 2, place->rank};
    struct {
        short value;
        int index;
    } small = {(short)(place->rank % 2), place->rank}, least = {-1, -1};

    PROGRAM_CALL(place, (void)0, Allreduce, Iallreduce, &in, &out, 1, MPI_FLOAT_INT, MPI_MINLOC,
                 place->comm);
    if (out.value != 0 || out.index != place->ranks - 1)
        program_wrong(place, "minloc is %g at %d", (double)out.value, out.index);
    PROGRAM_CALL(place, (most.value = place->rank / 2, most.index = place->rank), Allreduce,
                 Iallreduce, MPI_IN_PLACE, &most, 1, MPI_2INT, MPI_MAXLOC, place->comm);
    if (most.value != (place->ranks - 1) / 2 || most.index != (place->ranks - 1) / 2 * 2)
        program_wrong(place, "maxloc is %d at %d", most.value, most.index);
    PROGRAM_CALL(place, (void)0, Allreduce, Iallreduce, &small, &least, 1, MPI_SHORT_INT,
                 MPI_MINLOC, place->comm);
    if (least.value != 0 || least.index != 0)
        program_wrong(place, "minloc is %d at %d", least.value, least.index);
    program_hash(&out.index, sizeof(out.index));
    program_hash(&most.index, sizeof(most.index));
}

/* True if MPI permits the operation, an index into the list below, for that class of types. */
static bool reductions_permitted(char class, size_t op)
{
    bool arithmetic = op < 4, bitwise = !arithmetic && op < 7, logical = op >= 7;

    return (arithmetic && strchr("IJF", class)) || (bitwise && strchr("IJB", class)) ||
           (logical && strchr("IL", class));
}

void program_reductions(const struct place *place, int count)
{
    const struct type types[] = {TYPES(ROW)};
    const MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MIN,  MPI_MAX, MPI_BAND,
                          MPI_BOR, MPI_BXOR, MPI_LAND, MPI_LOR, MPI_LXOR};
    int turn = place->form;

    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
        for (size_t o = 0; o < sizeof(ops) / sizeof(ops[0]); o++) {
            if (reductions_permitted(types[t].class, o))
                reductions_one(place, &types[t], ops[o], count, turn++);
        }
    }
    reductions_complex(place);
    reductions_located(place);
}
