/* SPDX-License-Identifier: BSD-3-Clause */
/* --tensorboard: a file of events that TensorBoard reads. */
#ifndef TRAIN_RECORDS_EVENTS_H
#define TRAIN_RECORDS_EVENTS_H

#include <stdint.h>
#include <stdio.h>

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

#endif
