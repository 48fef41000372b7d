/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tensor parallelism: generates tokens with a transformer that has random weights. A layer:
 *
 *                     column-parallel                    row-parallel
 *     x -+-- RMSNorm -- q, k, v -- attention, KV cache -- o ----- all_reduce -- + -- x
 *        +----------------------------------------------------------------------+
 *     x -+-- RMSNorm -- gate, up -- silu(gate) * up ----- down -- all_reduce -- + -- x
 *        +----------------------------------------------------------------------+
 *
 * All ranks have the same x. The matrices of a layer are divided among the ranks:
 *
 *     column-parallel   A rank computes some outputs from all inputs: q, k, v of its attention
 *                       heads, whose KV cache it stores, and some of the MLP's hidden values.
 *     row-parallel      A rank has some of the inputs and computes their contribution to all
 *                       outputs. The all-reduce adds the contributions of the ranks.
 *
 * So each rank reads 1 / ranks of these weights per token. All ranks get the same bits from an
 * all-reduce, and therefore choose the same token. The embedding is complete on every rank.
 */
#include <dist/dist.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DIM = 512, HEADS = 8, HEAD = DIM / HEADS, HIDDEN = 1536, LAYERS = 4 };
enum { VOCABULARY = 1024, MAX_TOKENS = 4096 };

static struct layer {
    float *q, *k, *v, *o, *gate, *up, *down, *keys, *values;
} layers[LAYERS];
static float *embedding, *part, x[DIM]; /* part: what this rank contributes to the sum */
static dist_group *group;
static int rank, ranks, heads; /* heads: the number of attention heads of this rank */

static float *allocate(int rows, int columns)
{
    void *memory = calloc((size_t)rows * (size_t)columns, sizeof(float));

    if (!memory)
        perror("tensor_parallel"), exit(1);
    return (float *)memory;
}

/*
 * Returns this rank's part of a matrix, whose outputs (rows) are divided by `across` and inputs by
 * `along`. A weight depends on seed and place in the matrix. A real program reads a file instead.
 */
static float *make(unsigned seed, int outputs, int inputs, int across, int along)
{
    const int rows = outputs / across, row = rank % across * rows;
    const int columns = inputs / along, column = rank % along * columns;
    float *weights = allocate(rows, columns);

    for (int i = 0; i < rows * columns; i++) {
        int index = (row + i / columns) * inputs + column + i % columns;
        uint64_t z = ((uint64_t)seed << 32 | (unsigned)index) * 0x9e3779b97f4a7c15;

        z = (z ^ z >> 32) * 0xbf58476d1ce4e5b9;
        weights[i] = ((float)(z >> 40) / 8388608.0f - 1.0f) * sqrtf(12.0f / (float)inputs);
    }
    return weights;
}

static void make_layer(struct layer *layer, unsigned seed, int tokens)
{
    layer->q = make(seed, DIM, DIM, ranks, 1);
    layer->k = make(seed + 1, DIM, DIM, ranks, 1);
    layer->v = make(seed + 2, DIM, DIM, ranks, 1);
    layer->o = make(seed + 3, DIM, DIM, 1, ranks);
    layer->gate = make(seed + 4, HIDDEN, DIM, ranks, 1);
    layer->up = make(seed + 5, HIDDEN, DIM, ranks, 1);
    layer->down = make(seed + 6, DIM, HIDDEN, 1, ranks);
    layer->keys = allocate(tokens, heads * HEAD);
    layer->values = allocate(tokens, heads * HEAD);
}

static float dot(const float *a, const float *b, int n)
{
    float lane[8] = {0};

    for (int i = 0; i < n; i += 8) /* compilers use vector instructions for the eight sums */
        for (int k = 0; k < 8; k++)
            lane[k] += a[i + k] * b[i + k];
    return lane[0] + lane[1] + lane[2] + lane[3] + lane[4] + lane[5] + lane[6] + lane[7];
}

/* Computes RMSNorm of x, without weights. */
static void norm(float *out)
{
    const float scale = 1 / sqrtf(dot(x, x, DIM) / DIM + 1e-5f);

    for (int i = 0; i < DIM; i++)
        out[i] = x[i] * scale;
}

static void column_parallel(float *out, const float *matrix, const float *in, int outputs)
{
    for (int i = 0; i < outputs; i++)
        out[i] = dot(matrix + i * DIM, in, DIM);
}

/*
 * Adds the product of a matrix and a vector, of which `in` is this rank's part, to x. A real
 * program computes one dot product per output. Here the product is a sum over blocks, one per head,
 * each rounded to a multiple of 1 / 4096. Float adds such numbers exactly, in any order, up to
 * 4096. So the tokens do not depend on the number of ranks. Returns false if the all-reduce fails.
 */
static bool row_parallel(const float *matrix, const float *in, int block)
{
    for (int i = 0; i < DIM; i++) {
        part[i] = 0;
        for (int h = 0; h < heads; h++, matrix += block)
            part[i] += rintf(dot(matrix, in + h * block, block) * 4096) / 4096;
    }
    if (dist_all_reduce(group, part, part, DIM, DIST_FLOAT32, DIST_SUM) != DIST_OK)
        return false;
    for (int i = 0; i < DIM; i++)
        x[i] += part[i];
    return true;
}

/* Attends with one head to all tokens up to `position`; k and v are its part of the KV cache. */
static void attend(float *out, const float *q, const float *k, const float *v, int position)
{
    float score[MAX_TOKENS], largest = -INFINITY, total = 0;

    for (int t = 0; t <= position; t++) {
        score[t] = dot(q, k + t * heads * HEAD, HEAD) / sqrtf(HEAD);
        largest = fmaxf(largest, score[t]);
    }
    for (int t = 0; t <= position; t++)
        total += score[t] = expf(score[t] - largest);
    memset(out, 0, HEAD * sizeof(float));
    for (int t = 0; t <= position; t++)
        for (int i = 0; i < HEAD; i++)
            out[i] += score[t] / total * v[t * heads * HEAD + i];
}

static bool run_layer(const struct layer *layer, int position)
{
    const int width = heads * HEAD, hidden = HIDDEN / ranks;
    float normed[DIM], q[DIM], attended[DIM], gate[HIDDEN], up[HIDDEN];

    norm(normed);
    column_parallel(q, layer->q, normed, width);
    column_parallel(layer->keys + position * width, layer->k, normed, width);
    column_parallel(layer->values + position * width, layer->v, normed, width);
    for (int i = 0; i < width; i += HEAD) /* a position encoding would be applied to q and k here */
        attend(attended + i, q + i, layer->keys + i, layer->values + i, position);
    if (!row_parallel(layer->o, attended, HEAD))
        return false;
    norm(normed);
    column_parallel(gate, layer->gate, normed, hidden);
    column_parallel(up, layer->up, normed, hidden);
    for (int i = 0; i < hidden; i++)
        up[i] *= gate[i] / (1 + expf(-gate[i]));
    return row_parallel(layer->down, up, HIDDEN / HEADS);
}

int main(int argc, char **argv)
{
    const int tokens = argc > 1 ? atoi(argv[1]) : 64;
    float normed[DIM], logits[VOCABULARY];
    struct timespec begin, end;

    if (argc > 2 || tokens < 1 || tokens > MAX_TOKENS)
        return fprintf(stderr, "usage: distrun -n RANKS %s [TOKENS]\n", argv[0]), 2;
    if (dist_init_process_group(NULL, &group) != DIST_OK ||
        dist_alloc(group, sizeof(x), (void **)&part) != DIST_OK)
        return fprintf(stderr, "%s\n", dist_last_error()), 1;
    rank = dist_get_rank(group), ranks = dist_get_world_size(group), heads = HEADS / ranks;
    if (HEADS % ranks != 0)
        return fprintf(stderr, "%d heads: start 1, 2, 4 or 8 ranks, not %d\n", HEADS, ranks), 1;
    embedding = make(0, VOCABULARY, DIM, 1, 1);
    for (int l = 0; l < LAYERS; l++)
        make_layer(&layers[l], 1 + 7 * (unsigned)l, tokens);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int position = 0, token = 0; position < tokens; position++) {
        memcpy(x, embedding + token * DIM, sizeof(x));
        for (int l = 0; l < LAYERS; l++)
            if (!run_layer(&layers[l], position))
                return fprintf(stderr, "%s\n", dist_last_error()), 1;
        norm(normed);
        column_parallel(logits, embedding, normed, VOCABULARY);
        for (int i = token = 0; i < VOCABULARY; i++)
            token = logits[i] > logits[token] ? i : token;
        if (rank == 0)
            printf("%d ", token);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (rank == 0)
        printf("\n%d ranks: %.1f tokens per second\n", ranks,
               tokens / ((double)(end.tv_sec - begin.tv_sec) +
                         (double)(end.tv_nsec - begin.tv_nsec) / 1e9));
    dist_free(group, part);
    return dist_destroy_process_group(group) != DIST_OK;
}
