/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the cases of nccl_streams: a rank with a device, and streams and vectors on it. */
#ifndef TESTS_JOBS_NCCL_STREAMS_H
#define TESTS_JOBS_NCCL_STREAMS_H

#include "device/driver.h"

#include <dist/dist.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT ((size_t)5000) /* float32 elements of a vector */

struct streams {
    dist_group *group;
    int rank, ranks;
    const struct disti_driver *driver;
    void *a, *b; /* streams; a is the group's */
};

/* Exits the rank if the expression is false. */
#define CHECK(expression)                                                                          \
    do {                                                                                           \
        if (!(expression)) {                                                                       \
            fprintf(stderr, "%s:%d: %s is false; %s\n", __FILE__, __LINE__, #expression,           \
                    dist_last_error());                                                            \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define DONE(call) CHECK((call) == DIST_OK)

/* Returns device memory for count floats; freed by streams_drop. */
float *streams_vector(const struct streams *s, size_t count);
void streams_drop(const struct streams *s, float *vector);

/* Enqueues on the stream: every element becomes `value` plus its index modulo 7. */
void streams_fill(const struct streams *s, float *vector, size_t count, float value, void *stream);

/*
 * Waits for the stream only. Returns true if every element is `value` plus `factor` times (its
 * index modulo 7).
 */
bool streams_is(const struct streams *s, const float *vector, size_t count, float value,
                float factor, void *stream);

void streams_sleep_us(long us);

/* Returns the sum of rank + 1 over all ranks. */
float streams_sum(const struct streams *s);

/* ---- cases ---- */
void streams_blocking(const struct streams *s);
void streams_async(const struct streams *s);
void streams_tested(const struct streams *s);
void streams_two(const struct streams *s);
void streams_barrier(const struct streams *s);
void streams_subgroups(const struct streams *s);
void streams_captured(const struct streams *s);
void streams_groups(const struct streams *s);
void streams_batched(const struct streams *s);
void streams_unbatched(const struct streams *s);
void streams_to_itself(const struct streams *s);
void streams_allocated(const struct streams *s);
void streams_elsewhere(const struct streams *s);
void streams_host(const struct streams *s);
void streams_mixed(const struct streams *s);

#endif
