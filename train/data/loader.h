/* SPDX-License-Identifier: BSD-3-Clause */
/* Batches one after the other, loaded ahead by threads. */
#ifndef TRAIN_LOADER_H
#define TRAIN_LOADER_H

#include "batch.h"

struct loader;

/* A sample of a batch: what batch_add wants to know. */
struct loader_item {
    size_t index;
    uint32_t position;
    uint64_t augment_key;
};

/*
 * Says which samples batch `number` has: writes their items, at most the loader's capacity, and
 * returns how many they are. Called in the order of the numbers, by the thread that calls
 * loader_next, some batches before they are wanted.
 */
typedef int (*loader_plan_fn)(void *arg, int64_t number, struct loader_item *items);

/*
 * workers: threads that load, 0: loader_next loads itself. What is loaded does not depend on
 * their number: batches come in order, and a sample is a function of its item. capacity: samples of
 * a batch at most. The set outlives the loader. On success *loader_p is the caller's, for
 * loader_destroy. -1: out of memory, or of threads. One thread at a time uses a loader.
 */
int loader_create(const struct dataset *dataset, int workers, int capacity,
                  struct loader **loader_p);
void loader_destroy(struct loader *loader); /* waits for its threads; NULL is accepted */

/* Begins anew: `count` batches, numbered from 0. What was loaded before is forgotten. */
void loader_begin(struct loader *loader, int64_t count, loader_plan_fn plan, void *arg);

/* The next batch, for the caller until it calls again; NULL: there are no more. */
const struct batch *loader_next(struct loader *loader);

#endif
