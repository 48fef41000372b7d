/* SPDX-License-Identifier: BSD-3-Clause */
/* MNIST: its files, or digits that are drawn. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "augment.h"
#include "dataset.h"
#include "digits.h"
#include "idx.h"
#include "train/failure.h"

/*
 * A set is two files: {train,t10k}-{images,labels} + -idx{3,1}-ubyte or .idx{3,1}-ubyte, plain or
 * with .gz.
 */

/* The first spelling that exists, in path (size bytes). */
static int mnist_find(const char *folder, const char *what, int dimensions, char *path, size_t size)
{
    static const char *const endings[] = {"", ".gz"};
    static const char joints[] = {'-', '.'};

    for (size_t i = 0; i < sizeof(joints); i++) {
        for (size_t j = 0; j < 2; j++) {
            const int length = snprintf(path, size, "%s/%s%cidx%d-ubyte%s", folder, what, joints[i],
                                        dimensions, endings[j]);

            if (length < 0 || (size_t)length >= size)
                return failure("--data %s: the path is too long", folder);
            if (access(path, F_OK) == 0)
                return 0;
        }
    }
    return failure("--data %s: there is no file %s-idx%d-ubyte or %s-idx%d-ubyte.gz in it", folder,
                   what, dimensions, what, dimensions);
}

static int mnist_read_images(const char *path, struct dataset *dataset)
{
    struct idx idx = {.bytes = NULL};

    if (idx_read(path, 3, &idx) < 0)
        return -1;
    if (idx.sizes[1] != DIGITS_SIDE || idx.sizes[2] != DIGITS_SIDE) {
        free(idx.bytes);
        return failure("%s: byte 8: images of %u x %u, expected %d x %d", path, idx.sizes[1],
                       idx.sizes[2], DIGITS_SIDE, DIGITS_SIDE);
    }
    dataset->images = idx.bytes;
    dataset->count = idx.sizes[0];
    return 0;
}

static int mnist_read_labels(const char *path, struct dataset *dataset)
{
    struct idx idx = {.bytes = NULL};

    if (idx_read(path, 1, &idx) < 0)
        return -1;
    dataset->labels = idx.bytes;
    if (idx.sizes[0] != dataset->count)
        return failure("%s: byte 4: %u labels, expected %zu, one for each image", path,
                       idx.sizes[0], dataset->count);
    for (size_t i = 0; i < dataset->count; i++) {
        if (idx.bytes[i] >= DATASET_CLASSES)
            return failure("%s: byte %zu: label %u, expected 0 to %d", path, 8 + i, idx.bytes[i],
                           DATASET_CLASSES - 1);
    }
    return 0;
}

static int mnist_read(const char *folder, bool train, struct dataset *dataset)
{
    const char *images = train ? "train-images" : "t10k-images";
    const char *labels = train ? "train-labels" : "t10k-labels";
    char path[4096];

    if (mnist_find(folder, images, 3, path, sizeof(path)) < 0 ||
        mnist_read_images(path, dataset) < 0 ||
        mnist_find(folder, labels, 1, path, sizeof(path)) < 0)
        return -1;
    return mnist_read_labels(path, dataset);
}

const struct dataset_kind dataset_mnist = {
    .shape = {DIGITS_SIDE, DIGITS_SIDE, 1},
    .mean = {0.1307F},
    .deviation = {0.3081F},
    .read = mnist_read,
    .draw = digits_draw,
    .augment = augment_turn,
};
