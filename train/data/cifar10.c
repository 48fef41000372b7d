/* SPDX-License-Identifier: BSD-3-Clause */
/* CIFAR-10: its files in the binary version, or pictures that are drawn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "augment.h"
#include "dataset.h"
#include "pictures.h"
#include "source.h"
#include "train/failure.h"

/*
 * The training set is data_batch_1.bin to data_batch_5.bin, the test set is test_batch.bin, in the
 * folder or in cifar-10-batches-bin in it, as the archive unpacks. A file is records of
 *
 *   byte 0          the label, 0 to 9
 *   byte 1...       red of each pixel, row after row; then green, then blue
 *
 * as many as there are: usually 10000.
 */
enum {
    CIFAR10_PIXELS = PICTURES_SIDE * PICTURES_SIDE,
    CIFAR10_RECORD = 1 + 3 * CIFAR10_PIXELS,
    CIFAR10_GROWTH = 10000
};

/* The folder that has the files. */
static int cifar10_find(const char *folder, char *path, size_t size)
{
    static const char *const places[] = {"", "/cifar-10-batches-bin"};

    for (int i = 0; i < 2; i++) {
        const int length = snprintf(path, size, "%s%s/test_batch.bin", folder, places[i]);

        if (length < 0 || (size_t)length >= size)
            return failure("--data %s: the path is too long", folder);
        if (access(path, F_OK) == 0)
            return snprintf(path, size, "%s%s", folder, places[i]) < 0 ? -1 : 0;
    }
    return failure("--data %s: there is no test_batch.bin in it: give the folder with the binary "
                   "version of CIFAR-10 (not that for Python)",
                   folder);
}

/* Room for one more image, made for many at a time. */
static int cifar10_grow(const char *path, struct dataset *dataset)
{
    const size_t most = dataset->count + CIFAR10_GROWTH;
    uint8_t *images, *labels;

    if (dataset->count % CIFAR10_GROWTH != 0)
        return 0;
    images = realloc(dataset->images, most * (CIFAR10_RECORD - 1));
    dataset->images = images ? images : dataset->images;
    labels = realloc(dataset->labels, most);
    dataset->labels = labels ? labels : dataset->labels;
    return images && labels ? 0 : failure("%s: out of memory for %zu pictures", path, most);
}

/* One colour after the other becomes three colours for each pixel. */
static void cifar10_unpack(const uint8_t *planes, uint8_t *image)
{
    for (int i = 0; i < CIFAR10_PIXELS; i++) {
        for (int c = 0; c < 3; c++)
            *image++ = planes[c * CIFAR10_PIXELS + i];
    }
}

/* The record at `offset`. 1: the file has ended. */
static int cifar10_take(struct source *source, const char *path, uint64_t offset,
                        struct dataset *dataset)
{
    uint8_t record[CIFAR10_RECORD];
    size_t got;

    if (source_read(source, record, sizeof(record), &got) < 0)
        return -1;
    if (got == 0 && offset > 0)
        return 1;
    if (got < sizeof(record))
        return failure("%s: byte %llu: the file ends here, expected %zu bytes more: pictures are "
                       "%d bytes each",
                       path, (unsigned long long)offset + got, sizeof(record) - got,
                       CIFAR10_RECORD);
    if (record[0] >= DATASET_CLASSES)
        return failure("%s: byte %llu: label %u, expected 0 to %d", path,
                       (unsigned long long)offset, record[0], DATASET_CLASSES - 1);
    if (cifar10_grow(path, dataset) < 0)
        return -1;
    dataset->labels[dataset->count] = record[0];
    cifar10_unpack(record + 1, dataset->images + dataset->count * (CIFAR10_RECORD - 1));
    dataset->count++;
    return 0;
}

static int cifar10_read_file(const char *path, struct dataset *dataset)
{
    struct source *source = NULL;
    uint64_t offset = 0;
    int result = 0;

    if (source_open(path, &source) < 0)
        return -1;
    for (; result == 0; offset += CIFAR10_RECORD)
        result = cifar10_take(source, path, offset, dataset);
    source_close(source);
    return result < 0 ? -1 : 0;
}

static int cifar10_read(const char *folder, bool train, struct dataset *dataset)
{
    char place[4096], path[sizeof(place) + 32];

    if (cifar10_find(folder, place, sizeof(place)) < 0)
        return -1;
    for (int i = 1; i <= (train ? 5 : 1); i++) {
        if (train)
            snprintf(path, sizeof(path), "%s/data_batch_%d.bin", place, i);
        else
            snprintf(path, sizeof(path), "%s/test_batch.bin", place);
        if (cifar10_read_file(path, dataset) < 0)
            return -1;
    }
    return 0;
}

const struct dataset_kind dataset_cifar10 = {
    .shape = {PICTURES_SIDE, PICTURES_SIDE, 3},
    .mean = {0.4914F, 0.4822F, 0.4465F},
    .deviation = {0.2470F, 0.2435F, 0.2616F},
    .read = cifar10_read,
    .draw = pictures_draw,
    .augment = augment_crop,
};
