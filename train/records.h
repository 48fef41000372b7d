/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a training leaves behind in files: lines of JSON, TensorBoard's events, a page to look at, a
 * timeline. The trainer tells once what happens, and each record that was asked for takes what it
 * needs.
 */
#ifndef TRAIN_RECORDS_H
#define TRAIN_RECORDS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include <dist/dist.h>

struct options;

/* Seconds on a clock that only goes forward. */
static inline double comm_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* What a rank does in a step, and what of it is told apart. */
enum record_part {
    RECORD_DATA,     /* gets its samples ready */
    RECORD_FORWARD,  /* forward pass and loss */
    RECORD_BACKWARD, /* backward pass, and what of communication it hides */
    RECORD_WAIT,     /* waits for the gradients: communication that nothing hides */
    RECORD_UPDATE,   /* updates the parameters */
    RECORD_BUCKET,   /* gradients that travel, beside all of these */
    RECORD_TEST,
    RECORD_PARTS
};

/* Parts that follow each other in a step: all before the buckets. */
#define RECORD_IN_STEP RECORD_BUCKET

/* One row of a table: "batch-size", "64". */
struct record_fact {
    char name[40];
    char value[120];
    bool changed; /* not the default */
};

struct records_setup {
    const struct options *options; /* which records are asked for, and where */
    const char *program;
    const struct record_fact *settings; /* these must outlive the records */
    int setting_count;
    int64_t epochs; /* that are planned */
    int64_t step;   /* done before this run */
    bool resumed;   /* it goes on with an earlier run's files */
    int rank, world;
};

/* What is known of a step when it has ended; its loss may come later. */
struct record_step {
    int64_t step, epoch; /* from 1 */
    int64_t samples;     /* in this step, of all ranks */
    double lr;
    double seconds;               /* this rank's, from the end of the step before */
    double parts[RECORD_IN_STEP]; /* seconds of them */
};

/* A test at the end of an epoch. */
struct record_test {
    int64_t step, epoch; /* done by then */
    double loss;
    int64_t correct, count;
    double share; /* of this run's time that was communication, 0 to 1 */
};

struct records;

/*
 * Makes the files, so that one that cannot be written is known before the training begins: then
 * -1, and the failure's text names option and file. Local. With records NULL the functions below
 * but records_step do nothing.
 */
int records_open(const struct records_setup *setup, struct records **records_p);

/*
 * Compares clocks, and asks the ranks where they are. Collective if --report or --trace is asked
 * for, which is the same on all ranks. -1: a collective failed.
 */
int records_start(struct records *records, dist_group *group);

/* Where the time goes, for the timeline: seconds of comm_now. `number` tells buckets apart. */
void records_span(struct records *records, enum record_part part, int64_t step, int number,
                  double began, double ended);

/*
 * A step has ended; in order. At most RECORDS_AHEAD steps may be without their losses. Collective
 * at some steps, as records_start.
 */
enum { RECORDS_AHEAD = 256 };
int records_step(struct records *records, const struct record_step *step);

/* The mean losses, over all samples, of the earliest steps that have none yet. */
void records_losses(struct records *records, const double *losses, int count);

/* An epoch and its test have ended. Collective, as records_start. */
int records_test(struct records *records, const struct record_test *test);

/*
 * The last call. failed NULL: the training ended well, and all ranks come here: then the trace is
 * gathered from them, else it has this rank's part only. failed: why it did. share: as in the
 * tests; only of a training that ended well. Frees the records. Returns -1 if a file is incomplete.
 */
int records_close(struct records *records, const char *failed, double share);

/*
 * A file that cannot be written any more, as on a full disk, is reported once, on standard error.
 * Training goes on without it, and then records_close fails.
 */

/*
 * How long the ranks take, and who waits for whom. In a step all ranks have the reduced gradients
 * at about the same moment, so the one that waits least is the last that comes; what another rank
 * waits longer than that, it waits for the last one. The rest is communication.
 */

/* Where a step's time goes, all ranks' parts told apart. */
enum balance_part {
    BALANCE_FORWARD,
    BALANCE_BACKWARD,
    BALANCE_UPDATE,
    BALANCE_DATA,
    BALANCE_COMMUNICATION, /* that nothing hides */
    BALANCE_WAITING,       /* for the slowest rank */
    BALANCE_OTHER,         /* loss, lines, checkpoints */
    BALANCE_PARTS
};

/* Seconds of a rank's steps, added up. */
struct balance_rank {
    double seconds[BALANCE_PARTS];
    double steps;
};

enum { BALANCE_ROOM = 1024 }; /* steps between two comparisons */

struct balance {
    struct balance_rank own;
    float waits[BALANCE_ROOM], least[BALANCE_ROOM]; /* of steps not compared yet; over the ranks */
    int pending;
    struct balance_rank *ranks; /* of each rank, as it was when it was gathered last */
    int world;
};

/* ---- for tests: the parts of --trace, and a checksum ---- */

/*
 * The clocks of all ranks, seen from rank 0's.
 *
 * In an all-gather no rank leaves before all have entered. So of two ranks a and b
 *
 *     a entered  <=  b left        and        b entered  <=  a left
 *
 * on any one clock. Each round bounds how far their clocks are apart; of many rounds the narrowest
 * bounds hold.
 */

struct clock_offset {
    double at;     /* rank 0's clock, about when they were compared */
    double offset; /* seconds to take from the rank's clock to have rank 0's */
    double error;  /* at most so many seconds off, either way */
};

/* The narrowest bounds of these rounds: when one rank entered and left, and the other. */
struct clock_offset clock_bound(const double *enter0, const double *leave0, const double *enter,
                                const double *leave, int rounds);

/* When that was on rank 0's clock; between two comparisons the clocks drift evenly. */
double clock_aligned(const struct clock_offset *first, const struct clock_offset *last,
                     double time);

/* Spans that a rank keeps, the last ones: 1 MiB. */
enum { TRACE_ROOM = 1 << 15 };

struct trace_span {
    double began, ended; /* seconds of the rank's clock */
    int64_t step;
    int32_t part, number; /* of enum record_part; of the bucket */
};

/* A rank's part of the file, without its spans. */
struct trace_track {
    char host[HOST_NAME_MAX + 1];
    int32_t rank;
    int64_t count, lost; /* spans; earlier ones, for which there was no room */
    double earliest;     /* of the spans, on the rank's clock */
    struct clock_offset first, last;
};

/* Writes a rank's part of the file's text. */
void trace_track(const struct trace_track *track, const struct trace_span *spans, double origin,
                 FILE *to);

/* The checksum of TensorBoard's records: CRC-32C (Castagnoli; RFC 3720). */
uint32_t crc32c(const void *bytes, size_t size);

#endif
