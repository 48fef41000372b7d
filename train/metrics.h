/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers of steps and tests in files: --metrics and --tensorboard. A closed file is NULL. */
#ifndef TRAIN_METRICS_H
#define TRAIN_METRICS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "records.h"

/* ---- --tensorboard: a file of events that TensorBoard reads ---- */

struct events_scalar {
    const char *tag;
    double value;
};

/*
 * Makes the folder, unless it is there, and in it a new file events.out.tfevents.TIME.HOST.PID.
 * resumed: TensorBoard drops what earlier files of the folder have from the step after `step` on.
 */
int events_open(const char *folder, int64_t step, int resumed, FILE **file_p);

/* Values of one step, now: one record, in the file when this returns. At most 16 of them. */
int events_scalars(FILE *file, int64_t step, const struct events_scalar *scalars, int count);

/* The checksum of TensorBoard's records: CRC-32C (Castagnoli; RFC 3720). */
uint32_t crc32c(const void *bytes, size_t size);

/* ---- --metrics: a line of JSON for each step, and for each test ---- */

/* setup->resumed: adds to the file, and ends its last line if that was cut. */
int metrics_open(const char *path, const struct records_setup *setup, FILE **file_p);

/*
 * Each a line, in the file when they return. -1: it could not be written. The first is of `steps`
 * steps up to *step, which has their times and samples added up, and of their mean loss.
 */
int metrics_step(FILE *file, const struct record_step *step, double loss, int steps);
int metrics_test(FILE *file, const struct record_test *test);

/* Closes a file of either kind. */
int metrics_close(FILE **file_p);

#endif
