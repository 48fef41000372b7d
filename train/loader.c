/* SPDX-License-Identifier: BSD-3-Clause */
/* Batches of images, and threads that load them. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "dataset.h"
#include "failure.h"

/* ---- the samples of one pass ---- */

int batch_create(const struct dataset_kind *kind, int capacity, struct batch *batch)
{
    const size_t count = (size_t)capacity;

    *batch = (struct batch){.capacity = capacity};
    batch->images = calloc(count, (size_t)shape_size(kind->shape) * sizeof(*batch->images));
    batch->labels = calloc(count, sizeof(*batch->labels));
    batch->positions = calloc(count, sizeof(*batch->positions));
    if (batch->images && batch->labels && batch->positions)
        return 0;
    batch_destroy(batch);
    return failure("out of memory for a batch of %d samples", capacity);
}

void batch_add(struct batch *batch, const struct dataset *dataset, size_t index, uint32_t position,
               uint64_t augment_key)
{
    const struct dataset_kind *kind = dataset->kind;
    const int size = shape_size(kind->shape), channels = kind->shape.channels;
    float *to = batch->images + (size_t)batch->count * (size_t)size;
    uint8_t image[DATASET_PIXELS_MOST];

    batch->labels[batch->count] = dataset_get(dataset, index, image);
    if (augment_key)
        kind->augment(augment_key, image);
    /* Pixels from 0 to 255 to numbers around 0. */
    for (int i = 0; i < size; i += channels) {
        for (int c = 0; c < channels; c++)
            to[i + c] = ((float)image[i + c] / 255.0F - kind->mean[c]) / kind->deviation[c];
    }
    batch->positions[batch->count++] = position;
}

/* ---- batches loaded ahead by threads ---- */

/* Room for a batch. */
struct loader_slot {
    struct loader_item *items;
    int count; /* of them */
    struct batch batch;
    bool loaded;
};

/*
 * Batch n is in slot n % slot_count. Batches below `taken` have found a thread, those below
 * `planned` wait for one; batch `given` - 1 is the caller's.
 */
struct loader {
    const struct dataset *dataset;
    int slot_count, workers;
    struct loader_slot *slots;
    pthread_t *threads;
    pthread_mutex_t lock; /* for all below, and `loaded` of the slots */
    pthread_cond_t work, done;
    int64_t given, taken, planned, count;
    int busy; /* threads that load */
    bool ends;
    loader_plan_fn plan;
    void *arg;
};

static void loader_load(const struct loader *loader, struct loader_slot *slot)
{
    slot->batch.count = 0;
    for (int i = 0; i < slot->count; i++) {
        const struct loader_item *item = &slot->items[i];

        batch_add(&slot->batch, loader->dataset, item->index, item->position, item->augment_key);
    }
}

static void *loader_work(void *arg)
{
    struct loader *loader = arg;

    pthread_mutex_lock(&loader->lock);
    for (;;) {
        struct loader_slot *slot;

        while (!loader->ends && loader->taken == loader->planned)
            pthread_cond_wait(&loader->work, &loader->lock);
        if (loader->ends)
            break;
        slot = &loader->slots[loader->taken++ % loader->slot_count];
        loader->busy++;
        pthread_mutex_unlock(&loader->lock);
        loader_load(loader, slot);
        pthread_mutex_lock(&loader->lock);
        loader->busy--;
        slot->loaded = true;
        pthread_cond_broadcast(&loader->done);
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

const struct batch *loader_next(struct loader *loader)
{
    struct loader_slot *slot = &loader->slots[loader->given % loader->slot_count];

    if (loader->given == loader->count)
        return NULL;
    /* Gives free slots to the threads: all but the one that the caller is about to have. */
    while (loader->planned < loader->count &&
           loader->planned - loader->given < loader->slot_count) {
        struct loader_slot *next = &loader->slots[loader->planned % loader->slot_count];

        next->count = loader->plan(loader->arg, loader->planned, next->items);
        pthread_mutex_lock(&loader->lock);
        next->loaded = false;
        loader->planned++;
        pthread_cond_signal(&loader->work);
        pthread_mutex_unlock(&loader->lock);
    }
    if (loader->workers == 0) {
        loader_load(loader, slot);
    } else {
        pthread_mutex_lock(&loader->lock);
        while (!slot->loaded)
            pthread_cond_wait(&loader->done, &loader->lock);
        pthread_mutex_unlock(&loader->lock);
    }
    loader->given++;
    return &slot->batch;
}

void loader_begin(struct loader *loader, int64_t count, loader_plan_fn plan, void *arg)
{
    pthread_mutex_lock(&loader->lock);
    loader->taken = loader->planned;
    while (loader->busy > 0)
        pthread_cond_wait(&loader->done, &loader->lock);
    loader->given = loader->taken = loader->planned = 0;
    loader->count = count;
    loader->plan = plan;
    loader->arg = arg;
    pthread_mutex_unlock(&loader->lock);
}

/* Each thread loads a batch, one is ready, and one is the caller's. */
int loader_create(const struct dataset *dataset, int workers, int capacity,
                  struct loader **loader_p)
{
    struct loader *loader = calloc(1, sizeof(*loader));
    int error = 0;

    if (!loader)
        return failure("out of memory for a loader");
    loader->dataset = dataset;
    loader->slot_count = workers > 0 ? workers + 2 : 1;
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->work, NULL);
    pthread_cond_init(&loader->done, NULL);
    loader->slots = calloc((size_t)loader->slot_count, sizeof(*loader->slots));
    loader->threads = calloc((size_t)workers + 1, sizeof(*loader->threads));
    if (!loader->slots || !loader->threads) {
        failure("out of memory for %d workers", workers);
        goto failed;
    }
    for (int i = 0; i < loader->slot_count; i++) {
        struct loader_slot *slot = &loader->slots[i];

        slot->items = calloc((size_t)capacity, sizeof(*slot->items));
        if (!slot->items)
            failure("out of memory for %d batches that are loaded ahead", loader->slot_count);
        if (!slot->items || batch_create(dataset->kind, capacity, &slot->batch) < 0)
            goto failed;
    }
    for (; loader->workers < workers; loader->workers++) {
        error = pthread_create(&loader->threads[loader->workers], NULL, loader_work, loader);
        if (error) {
            failure("cannot start worker %d of %d: %s", loader->workers + 1, workers,
                    strerror(error));
            goto failed;
        }
    }
    *loader_p = loader;
    return 0;

failed:
    loader_destroy(loader);
    return -1;
}

void loader_destroy(struct loader *loader)
{
    if (!loader)
        return;
    pthread_mutex_lock(&loader->lock);
    loader->ends = true;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->lock);
    for (int i = 0; i < loader->workers; i++)
        pthread_join(loader->threads[i], NULL);
    for (int i = 0; loader->slots && i < loader->slot_count; i++) {
        free(loader->slots[i].items);
        batch_destroy(&loader->slots[i].batch);
    }
    free(loader->slots);
    free(loader->threads);
    pthread_cond_destroy(&loader->done);
    pthread_cond_destroy(&loader->work);
    pthread_mutex_destroy(&loader->lock);
    free(loader);
}
