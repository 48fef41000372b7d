/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The records of a training: lines of JSON, TensorBoard events, an HTML report, a timeline. The
 * trainer reports each event once, and every requested record uses what it needs.
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

/* Returns seconds on a monotonic clock. */
static inline double comm_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Parts of a step that are measured separately. */
enum record_part {
    RECORD_DATA,     /* prepares the samples */
    RECORD_FORWARD,  /* forward pass and loss */
    RECORD_BACKWARD, /* backward pass, with the communication that overlaps it */
    RECORD_WAIT,     /* waits for the gradients: exposed communication */
    RECORD_UPDATE,   /* updates the parameters */
    RECORD_BUCKET,   /* transfer of a bucket of gradients, concurrent with the other parts */
    RECORD_TEST,
    RECORD_PARTS
};

/* The parts that follow each other in a step: all before RECORD_BUCKET. */
#define RECORD_IN_STEP RECORD_BUCKET

/* A row of a table, such as "batch-size", "64". */
struct record_fact {
    char name[40];
    char value[120];
    bool changed; /* differs from the default */
};

struct records_setup {
    const struct options *options; /* chooses the records and their files */
    const char *program;
    const struct record_fact *settings; /* must outlive the records */
    int setting_count;
    int64_t epochs; /* planned */
    int64_t step;   /* steps done before this run */
    bool resumed;   /* continue the files of an earlier run */
    int rank, world;
};

/* A step that has ended. Its loss may be reported later. */
struct record_step {
    int64_t step, epoch; /* from 1 */
    int64_t samples;     /* of this step, over all ranks */
    double lr;
    double seconds;               /* time on this rank since the end of the previous step */
    double parts[RECORD_IN_STEP]; /* seconds per part */
};

/* A test at the end of an epoch. */
struct record_test {
    int64_t step, epoch; /* done at the time of the test */
    double loss;
    int64_t correct, count;
    double share; /* fraction of this run's time spent in communication, 0 to 1 */
};

struct records;

/*
 * Creates the files, so that errors are found before the training begins. -1: the failure's text
 * names the option and the file. Local. If records is NULL, all functions below except records_step
 * do nothing.
 *
 * If a file cannot be written later, for example on a full disk, this is reported once on standard
 * error. The training continues without the file, and records_close fails.
 */
int records_open(const struct records_setup *setup, struct records **records_p);

/*
 * Compares the clocks and gathers the topology. Collective if --report or --trace is given; all
 * ranks must agree on that. -1: a collective failed.
 */
int records_start(struct records *records, dist_group *group);

/* Adds a span to the timeline; began and ended are from comm_now. number: the bucket, or 0. */
void records_span(struct records *records, enum record_part part, int64_t step, int number,
                  double began, double ended);

/*
 * Records a step that has ended. Steps must be recorded in order, and at most RECORDS_AHEAD steps
 * may be without their losses. Collective at some steps, under the same condition as records_start.
 */
enum { RECORDS_AHEAD = 256 };
int records_step(struct records *records, const struct record_step *step);

/* Sets the mean losses, over all samples, of the earliest `count` steps that have none yet. */
void records_losses(struct records *records, const double *losses, int count);

/* Records an epoch and its test. Collective under the same condition as records_start. */
int records_test(struct records *records, const struct record_test *test);

/*
 * Completes all files and frees the records. failed: why the training failed; NULL if it succeeded.
 * If it succeeded, all ranks must call this, and the trace is gathered from all of them; otherwise
 * the trace contains only this rank's part. share: as in struct record_test; used only if the
 * training succeeded. -1: a file is incomplete.
 */
int records_close(struct records *records, const char *failed, double share);

/*
 * ---- balance: how long the ranks work, and how long they wait for each other ----
 *
 * In a step, all ranks receive the reduced gradients at about the same time, so the rank that waits
 * least was the last to arrive. If another rank waits longer, the difference is waiting for the
 * slowest rank; the remaining wait is communication.
 */

/* Parts of a step's time, with waiting separated from communication. */
enum balance_part {
    BALANCE_FORWARD,
    BALANCE_BACKWARD,
    BALANCE_UPDATE,
    BALANCE_DATA,
    BALANCE_COMMUNICATION, /* exposed communication */
    BALANCE_WAITING,       /* waiting for the slowest rank */
    BALANCE_OTHER,         /* loss, output, checkpoints */
    BALANCE_PARTS
};

/* Sums over the steps of a rank. */
struct balance_rank {
    double seconds[BALANCE_PARTS];
    double steps;
};

enum { BALANCE_STEPS = 1024 }; /* steps between two comparisons */

struct balance {
    struct balance_rank own;
    float waits[BALANCE_STEPS], least[BALANCE_STEPS]; /* steps not compared yet: this rank's waits,
                                                       and the minimum over the ranks */
    int pending;
    struct balance_rank *ranks; /* of each rank, as of the last gather */
    int world;
};

/* ---- for tests: the parts of --trace, and a checksum ---- */

/*
 * Estimates the offsets of all ranks' clocks from rank 0's.
 *
 * In an all-gather no rank leaves before all ranks have entered. So for two ranks a and b
 *
 *     a entered  <=  b left        and        b entered  <=  a left
 *
 * on any one clock. Each round gives a lower and an upper bound of the offset of their clocks; the
 * tightest bounds of all rounds are used.
 */

struct clock_offset {
    double at;     /* time of the comparison, on rank 0's clock */
    double offset; /* seconds to subtract from the rank's clock to obtain rank 0's */
    double error;  /* maximum error of offset in seconds, in either direction */
};

/*
 * Returns the offset from the tightest bounds of all rounds; enter0 and leave0 are rank 0's times.
 */
struct clock_offset clock_bound(const double *enter0, const double *leave0, const double *enter,
                                const double *leave, int rounds);

/*
 * Converts a time of a rank to rank 0's clock. Assumes that the clocks drift linearly between the
 * two comparisons.
 */
double clock_aligned(const struct clock_offset *first, const struct clock_offset *last,
                     double time);

/* Maximum number of spans that a rank keeps (the last ones): 1 MiB. */
enum { TRACE_SPANS = 1 << 15 };

struct trace_span {
    double began, ended; /* seconds on the rank's clock */
    int64_t step;
    int32_t part, number; /* an enum record_part; number of the bucket */
};

/* A rank's part of the file, without its spans. */
struct trace_track {
    char host[HOST_NAME_MAX + 1];
    int32_t rank;
    int64_t count, lost; /* spans that are kept; earlier spans that were dropped */
    double earliest;     /* start of the earliest span, on the rank's clock */
    struct clock_offset first, last;
};

/* Writes a rank's part of the file. */
void trace_track(const struct trace_track *track, const struct trace_span *spans, double origin,
                 FILE *to);

/* Returns the CRC-32C (Castagnoli, RFC 3720), the checksum of TensorBoard's records. */
uint32_t crc32c(const void *bytes, size_t size);

#endif
