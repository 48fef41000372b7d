/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap: measures how much of the communication of a training the backward pass hides. The model
 * consists of square layers, computed as matrix products.
 */
#include "tools/common/args.h"

#include <dist/ddp.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct model {
    int layers, width, batch;
    size_t count, rows; /* floats of a layer, and of a batch */
    float *weights;     /* `layers` matrices of width x width */
    float *values;      /* (layers + 1) matrices of batch x width */
    float *deltas,
        *next; /* gradients with respect to the outputs and the inputs of a layer, batch x width */
};

/*
 * Fills with pseudo-random numbers up to `bound`, small enough that values neither vanish nor
 * overflow across layers.
 */
static void model_fill(float *values, size_t count, float bound)
{
    unsigned state = 1;

    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = bound * ((float)(state >> 8) / (float)(1 << 23) - 1.0f);
    }
}

/* Changes the number of samples per step. -1: out of memory. */
static int model_resize(struct model *model, int batch)
{
    const size_t rows = (size_t)batch * (size_t)model->width;

    model->batch = batch;
    model->rows = rows;
    model->values = realloc(model->values, (size_t)(model->layers + 1) * rows * sizeof(float));
    model->deltas = realloc(model->deltas, rows * sizeof(float));
    model->next = realloc(model->next, rows * sizeof(float));
    if (!model->values || !model->deltas || !model->next)
        return -1;
    model_fill(model->values, rows, 1.0f);
    return 0;
}

/*
 * Computes out (batch x width) = in (batch x width) * matrix. Uses each row of the matrix for all
 * rows of in.
 */
static void model_multiply(const struct model *model, const float *in, const float *matrix,
                           float *out)
{
    const size_t width = (size_t)model->width;

    memset(out, 0, model->rows * sizeof(float));
    for (size_t k = 0; k < width; k++) {
        for (size_t row = 0; row < (size_t)model->batch; row++) {
            const float factor = in[row * width + k];

            for (size_t i = 0; i < width; i++)
                out[row * width + i] += factor * matrix[k * width + i];
        }
    }
}

static void model_forward(struct model *model)
{
    const size_t rows = model->rows, count = model->count;

    for (int i = 0; i < model->layers; i++)
        model_multiply(model, model->values + (size_t)i * rows, model->weights + (size_t)i * count,
                       model->values + (size_t)(i + 1) * rows);
    memcpy(model->deltas, model->values + (size_t)model->layers * rows, rows * sizeof(float));
}

/*
 * Runs the backward pass of one layer and writes its gradient. Layers must be processed in
 * descending order.
 */
static void model_backward(struct model *model, int layer, float *gradient)
{
    float *deltas = model->next;

    /* gradient (width x width) = deltas transposed * in. */
    const float *in = model->values + (size_t)layer * model->rows;
    const size_t width = (size_t)model->width;

    for (size_t k = 0; k < width; k++) {
        memset(gradient + k * width, 0, width * sizeof(float));
        for (size_t row = 0; row < (size_t)model->batch; row++) {
            const float factor = model->deltas[row * width + k];

            for (size_t i = 0; i < width; i++)
                gradient[k * width + i] += factor * in[row * width + i];
        }
    }
    model_multiply(model, model->deltas, model->weights + (size_t)layer * model->count, deltas);
    model->next = model->deltas;
    model->deltas = deltas;
}

/*
 * Each rank trains a model of matrix products. The batch is chosen so that the backward pass takes
 * about as long as the communication of its gradients. A round has one step of each kind:
 *
 *   alone    sends nothing
 *   after    sends all gradients after the backward pass
 *   hidden   sends each bucket as soon as its gradients are complete, the intended use of dist_ddp
 *
 * This is repeated for each compression, which gives one line of output. The hidden share is 1 -
 * (hidden - alone) / (after - alone). The remaining communication is spent in dist_ddp_finish
 * ("waited"), or has slowed down the computation.
 */

enum { COMPRESSIONS = 4, ROUNDS_MOST = 101, CALIBRATIONS = 3 };
enum manner { ALONE, AFTER, HIDDEN, MANNERS };

static const char *const compression_names[COMPRESSIONS] = {"same", "float16", "bfloat16", "int8"};

struct options {
    int64_t layers, width, first_bucket, bucket, rounds, batch;
    double ratio;
    int help;
};

#define AT(member) offsetof(struct options, member)
static const struct args_row options_rows[] = {
    {"layers", 'l', ARGS_INT, AT(layers), 1, 10000, "N", "layers of the model (64)"},
    {"width", 'w', ARGS_INT, AT(width), 1, 8192, "N", "N * N floats per layer (256)"},
    {"first-bucket", 'f', ARGS_BYTES, AT(first_bucket), 0, 1e12, "BYTES",
     "size of the first bucket (default: of dist_ddp)"},
    {"bucket", 'b', ARGS_BYTES, AT(bucket), 0, 1e12, "BYTES",
     "size of the other buckets (default: of dist_ddp)"},
    {"ratio", 'x', ARGS_REAL, AT(ratio), 0.001, 1000, "X",
     "the backward pass takes X times as long as the communication (1)"},
    {"batch", 0, ARGS_INT, AT(batch), 1, 1 << 20, "N", "samples per step, instead of --ratio"},
    {"rounds", 'r', ARGS_INT, AT(rounds), 1, ROUNDS_MOST, "N",
     "steps of each kind; medians are printed (3)"},
    {"help", 'h', ARGS_ACTION, AT(help), 1, 0, NULL, "print this and exit"},
};
static const struct args options_args = {.rows = options_rows,
                                         .count = sizeof(options_rows) / sizeof(options_rows[0]),
                                         .program = "overlap",
                                         .usage = "[OPTION]...",
                                         .about = "Measures how much of the communication of a "
                                                  "training the backward pass hides. Start it with "
                                                  "a launcher.\n"};

struct overlap {
    struct options options;
    dist_group *group;
    struct model model;
    dist_ddp *ddp[COMPRESSIONS];
    /* For the current compression. */
    double seconds[MANNERS][ROUNDS_MOST];
    double waited[ROUNDS_MOST]; /* seconds in dist_ddp_finish, of hidden steps */
    uint64_t sent;              /* bytes sent in all hidden steps */
    double sends;               /* seconds to send the gradients alone; 0: not measured */
};

static void stop(const char *what)
{
    fprintf(stderr, "overlap: %s: %s\n", what, dist_last_error());
    exit(1);
}

static void need(dist_status status, const char *what)
{
    if (status != DIST_OK)
        stop(what);
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/*
 * Returns the bytes sent by all interfaces except the loopback. These are this rank's bytes if it
 * is alone on its host.
 */
static uint64_t bytes_sent(void)
{
    FILE *file = fopen("/proc/net/dev", "r");
    char line[512], name[64];
    uint64_t bytes, all = 0;

    while (file && fgets(line, sizeof(line), file)) {
        if (sscanf(line, " %63[^:]: %*u %*u %*u %*u %*u %*u %*u %*u %" SCNu64, name, &bytes) == 2 &&
            strcmp(name, "lo") != 0)
            all += bytes;
    }
    if (file)
        fclose(file);
    return all;
}

/* Returns the time of the slowest rank. */
static double slowest(struct overlap *o, double seconds)
{
    need(dist_all_reduce(o->group, &seconds, &seconds, 1, DIST_FLOAT64, DIST_MAX), "all_reduce");
    return seconds;
}

static double waited(const struct overlap *o, int compression)
{
    struct dist_ddp_stats stats = {.size = sizeof(stats)};

    need(dist_ddp_get_stats(o->ddp[compression], &stats), "get_stats");
    return stats.waited;
}

/* Runs a step and returns its time in seconds; without `compute`, only sends the gradients. */
static double step(struct overlap *o, int compression, enum manner manner, bool compute)
{
    dist_ddp *ddp = o->ddp[compression];
    double start;

    need(dist_ddp_set_sync(ddp, manner != ALONE), "set_sync");
    need(dist_barrier(o->group), "barrier");
    start = now();
    if (compute)
        model_forward(&o->model);
    for (int i = o->model.layers - 1; i >= 0; i--) {
        if (compute)
            model_backward(&o->model, i, dist_ddp_gradient(ddp, i));
        if (manner != AFTER)
            need(dist_ddp_ready(ddp, i), "ready");
    }
    for (int i = o->model.layers - 1; i >= 0 && manner == AFTER; i--)
        need(dist_ddp_ready(ddp, i), "ready");
    need(dist_ddp_finish(ddp), "finish");
    return slowest(o, now() - start);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *times, int count)
{
    qsort(times, (size_t)count, sizeof(*times), compare);
    return times[count / 2];
}

/* Returns the time of the backward pass alone. */
static double backward(struct overlap *o)
{
    double start;

    model_forward(&o->model);
    start = now();
    for (int i = o->model.layers - 1; i >= 0; i--)
        model_backward(&o->model, i, dist_ddp_gradient(o->ddp[0], i));
    return slowest(o, now() - start);
}

/* Chooses the number of samples so that the backward pass takes as long as the options require. */
static void choose_batch(struct overlap *o)
{
    double sends[CALIBRATIONS], computes[CALIBRATIONS], batch = 16;

    for (int i = 0; i < CALIBRATIONS; i++)
        sends[i] = step(o, 0, AFTER, false);
    o->sends = median(sends, CALIBRATIONS);
    for (int pass = 0; pass < 2; pass++) {
        if (model_resize(&o->model, (int)batch) < 0)
            stop("out of memory for the model's values");
        for (int i = 0; i < CALIBRATIONS; i++)
            computes[i] = backward(o);
        batch *= o->options.ratio * o->sends / median(computes, CALIBRATIONS);
        batch = batch < 1 ? 1 : batch > 1 << 20 ? 1 << 20 : batch;
    }
    o->options.batch = (int64_t)(batch + 0.5);
}

static void print_head(const struct overlap *o)
{
    const double mib = (double)o->model.count * o->model.layers * sizeof(float) / 1048576;
    struct dist_ddp_stats stats = {.size = sizeof(stats)};

    need(dist_ddp_get_stats(o->ddp[0], &stats), "get_stats");
    printf(
        "# %d ranks, %.1f MiB of gradients, %d layers, %d buckets, batch %d per rank; medians of "
        "%" PRId64 "\n",
        dist_get_world_size(o->group), mib, o->model.layers, stats.buckets, o->model.batch,
        o->options.rounds);
    if (o->sends > 0)
        printf("# the gradients alone take %.1f ms\n", 1e3 * o->sends);
    printf("%-9s %9s %9s %9s %9s %8s %14s\n", "wire", "alone ms", "after ms", "hidden ms",
           "waited ms", "hidden", "MiB sent/step");
    fflush(stdout);
}

static void run(struct overlap *o)
{
    const bool first = dist_get_rank(o->group) == 0;

    const size_t width = (size_t)o->options.width, count = width * width;
    const size_t weights = (size_t)o->options.layers * count;

    o->model = (struct model){.layers = (int)o->options.layers,
                              .width = (int)width,
                              .count = count,
                              .weights = malloc(weights * sizeof(float))};
    if (!o->model.weights)
        stop("out of memory for the model");
    model_fill(o->model.weights, weights, 1.0f / (float)width);
    for (int compression = 0; compression < COMPRESSIONS; compression++) {
        struct dist_ddp_options options = DIST_DDP_OPTIONS_INIT;
        struct dist_ddp_parameter *parameters =
            calloc((size_t)o->model.layers, sizeof(*parameters));

        if (!parameters)
            stop("out of memory");
        for (int i = 0; i < o->model.layers; i++)
            parameters[i].count = count;
        options.first_bucket_bytes = (size_t)o->options.first_bucket;
        options.bucket_bytes = (size_t)o->options.bucket;
        options.wire = (dist_ddp_wire)compression;
        need(dist_ddp_create(o->group, parameters, o->model.layers, &options, &o->ddp[compression]),
             "create");
        free(parameters);
    }
    if (o->options.batch == 0)
        choose_batch(o);
    if (model_resize(&o->model, (int)o->options.batch) < 0)
        stop("out of memory for the model's values");
    if (first)
        print_head(o);
    for (int compression = 0; compression < COMPRESSIONS; compression++) {
        /*
         * The first step, in which dist_ddp determines the order of the gradients, is not measured.
         */
        o->sent = 0;
        step(o, compression, HIDDEN, true);
        for (int round = 0; round < o->options.rounds; round++) {
            /* A round: one step of each kind. */
            for (int manner = 0; manner < MANNERS; manner++) {
                const uint64_t before = bytes_sent();
                const double waits = waited(o, compression);

                o->seconds[manner][round] = step(o, compression, (enum manner)manner, true);
                if (manner == HIDDEN) {
                    o->waited[round] = waited(o, compression) - waits;
                    o->sent += bytes_sent() - before;
                }
            }
        }
        if (first) {
            const int rounds = (int)o->options.rounds;
            const double alone = median(o->seconds[ALONE], rounds);
            const double after = median(o->seconds[AFTER], rounds);
            const double hidden = median(o->seconds[HIDDEN], rounds);

            printf("%-9s %9.1f %9.1f %9.1f %9.1f %6.1f %% %14.2f\n", compression_names[compression],
                   1e3 * alone, 1e3 * after, 1e3 * hidden, 1e3 * median(o->waited, rounds),
                   100 * (1 - (hidden - alone) / (after - alone)),
                   (double)o->sent / rounds / 1048576);
            fflush(stdout);
        }
    }
    for (int compression = 0; compression < COMPRESSIONS; compression++)
        need(dist_ddp_destroy(o->ddp[compression]), "destroy");
    free(o->model.values);
    free(o->model.deltas);
    free(o->model.next);
    free(o->model.weights);
}

static int act(struct overlap *o, int argc, char **argv)
{
    int rest, code;

    o->options = (struct options){.layers = 64, .width = 256, .rounds = 3, .ratio = 1};
    code = args_begin(&options_args, argc, argv, &o->options, 0, &rest);
    if (code >= 0)
        return code;
    need(dist_init_process_group(NULL, &o->group), "init");
    run(o);
    need(dist_destroy_process_group(o->group), "destroy_process_group");
    return 0;
}

int main(int argc, char **argv)
{
    struct overlap *o = calloc(1, sizeof(*o));
    const int code = o ? act(o, argc, argv) : 1;

    free(o);
    return code;
}
