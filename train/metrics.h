/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers of steps and tests in files: --metrics and --tensorboard. */
#ifndef TRAIN_METRICS_H
#define TRAIN_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "records.h"

/* ---- the checksum of TensorBoard's records: CRC-32C (Castagnoli; RFC 3720) ---- */

uint32_t crc32c(const void *bytes, size_t size);

/* Turned and shifted, so that a record may hold checksums itself. */
uint32_t crc32c_masked(const void *bytes, size_t size);

/* ---- --tensorboard: a file of events that TensorBoard reads ---- */

struct events {
    FILE *file; /* NULL: closed */
};

struct events_scalar {
    const char *tag;
    double value;
};

/*
 * Makes the folder, unless it is there, and in it a new file events.out.tfevents.TIME.HOST.PID.
 * resumed: TensorBoard drops what earlier files of the folder have from the step after `step` on.
 */
int events_open(const char *folder, int64_t step, int resumed, struct events *events);

/* Values of one step, now: one record, in the file when this returns. At most 16 of them. */
int events_scalars(struct events *events, int64_t step, const struct events_scalar *scalars,
                   int count);
int events_close(struct events *events);

/* ---- --metrics: a line of JSON for each step, and for each test ---- */

struct metrics {
    FILE *file; /* NULL: closed */
};

/* resumed: adds to the file, and ends its last line if that was cut. */
int metrics_open(const char *path, const struct records_setup *setup, struct metrics *metrics);

/*
 * Each a line, in the file when they return. -1: it could not be written. The first is of `steps`
 * steps up to *step, which has their times and samples added up, and of their mean loss.
 */
int metrics_step(struct metrics *metrics, const struct record_step *step, double loss, int steps);
int metrics_test(struct metrics *metrics, const struct record_test *test);
int metrics_close(struct metrics *metrics);

#endif
