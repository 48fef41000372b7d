/* SPDX-License-Identifier: BSD-3-Clause */
/* Labelled images. */
#include "dataset.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "digits.h"
#include "idx.h"
#include "train/failure.h"

/* The first spelling that exists, in path (size bytes). */
static int dataset_find(const char *folder, const char *what, int dimensions, char *path,
                        size_t size)
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

static int dataset_check_folder(const char *folder)
{
    struct stat status;

    if (stat(folder, &status) < 0)
        return failure("--data %s: %s", folder, strerror(errno));
    if (!S_ISDIR(status.st_mode))
        return failure("--data %s: not a folder; give the one that holds the IDX files", folder);
    return 0;
}

static int dataset_read_images(const char *path, struct dataset *dataset)
{
    struct idx idx;

    if (idx_read(path, 3, &idx) < 0)
        return -1;
    if (idx.sizes[1] != MODEL_SIDE || idx.sizes[2] != MODEL_SIDE) {
        free(idx.bytes);
        return failure("%s: byte 8: images of %u x %u, expected %d x %d", path, idx.sizes[1],
                       idx.sizes[2], MODEL_SIDE, MODEL_SIDE);
    }
    dataset->images = idx.bytes;
    dataset->count = idx.sizes[0];
    return 0;
}

static int dataset_read_labels(const char *path, struct dataset *dataset)
{
    struct idx idx;

    if (idx_read(path, 1, &idx) < 0)
        return -1;
    dataset->labels = idx.bytes;
    if (idx.sizes[0] != dataset->count)
        return failure("%s: byte 4: %u labels, expected %zu, one for each image", path,
                       idx.sizes[0], dataset->count);
    for (size_t i = 0; i < dataset->count; i++) {
        if (idx.bytes[i] >= MODEL_CLASSES)
            return failure("%s: byte %zu: label %u, expected 0 to %d", path, 8 + i, idx.bytes[i],
                           MODEL_CLASSES - 1);
    }
    return 0;
}

int dataset_read(const char *folder, bool train, struct dataset *dataset)
{
    const char *images = train ? "train-images" : "t10k-images";
    const char *labels = train ? "train-labels" : "t10k-labels";
    struct dataset read = {.train = train};
    char path[4096];

    if (dataset_check_folder(folder) < 0 ||
        dataset_find(folder, images, 3, path, sizeof(path)) < 0 ||
        dataset_read_images(path, &read) < 0 ||
        dataset_find(folder, labels, 1, path, sizeof(path)) < 0 ||
        dataset_read_labels(path, &read) < 0) {
        dataset_destroy(&read);
        return -1;
    }
    *dataset = read;
    return 0;
}

void dataset_draw(size_t count, bool train, uint64_t seed, struct dataset *dataset)
{
    *dataset = (struct dataset){.count = count, .seed = seed, .train = train};
}

void dataset_destroy(struct dataset *dataset)
{
    free(dataset->images);
    free(dataset->labels);
    dataset->images = dataset->labels = NULL;
}

uint8_t dataset_get(const struct dataset *dataset, size_t index, uint8_t *image)
{
    if (!dataset->images)
        return digits_draw(dataset->seed, dataset->train, index, image);
    memcpy(image, dataset->images + index * MODEL_PIXELS, MODEL_PIXELS);
    return dataset->labels[index];
}
