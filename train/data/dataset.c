/* SPDX-License-Identifier: BSD-3-Clause */
/* Labelled images. */
#include "dataset.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "train/failure.h"

static int dataset_check_folder(const char *folder)
{
    struct stat status;

    if (stat(folder, &status) < 0)
        return failure("--data %s: %s", folder, strerror(errno));
    if (!S_ISDIR(status.st_mode))
        return failure("--data %s: not a folder; give the one that holds the files", folder);
    return 0;
}

int dataset_read(const struct dataset_kind *kind, const char *folder, bool train,
                 struct dataset *dataset)
{
    struct dataset read = {.kind = kind, .train = train};

    if (dataset_check_folder(folder) < 0 || kind->read(folder, train, &read) < 0) {
        dataset_destroy(&read);
        return -1;
    }
    *dataset = read;
    return 0;
}

void dataset_draw(const struct dataset_kind *kind, size_t count, bool train, uint64_t seed,
                  struct dataset *dataset)
{
    *dataset = (struct dataset){.kind = kind, .count = count, .seed = seed, .train = train};
}

void dataset_destroy(struct dataset *dataset)
{
    free(dataset->images);
    free(dataset->labels);
    dataset->images = dataset->labels = NULL;
}

uint8_t dataset_get(const struct dataset *dataset, size_t index, uint8_t *image)
{
    const size_t size = (size_t)shape_size(dataset->kind->shape);

    if (!dataset->images)
        return dataset->kind->draw(dataset->seed, dataset->train, index, image);
    memcpy(image, dataset->images + index * size, size);
    return dataset->labels[index];
}
