/* SPDX-License-Identifier: BSD-3-Clause */
/* Files of images: IDX, plain and compressed, and CIFAR-10. */
#include "tests/fuzz/fuzz.h"

#include "train/dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void fuzz_idx(struct fuzz_input *input)
{
    int dimensions = 1 + fuzz_byte(input) % IDX_MAX_DIMENSIONS;
    struct idx idx;

    if (idx_read(fuzz_file(input), dimensions, &idx) < 0)
        return;
    FUZZ_MUST(idx.count > 0 && idx.bytes);
    free(idx.bytes);
}

/* Returns a folder in which the test set and the first part of the training set are the input. */
static const char *dataset_files(struct fuzz_input *input)
{
    static const char *const names[] = {"test_batch.bin", "data_batch_1.bin"};
    const char *file = fuzz_file(input), *folder = fuzz_folder();
    char path[64];

    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        unlink(path);
        FUZZ_MUST(symlink(file, path) == 0);
    }
    return folder;
}

void fuzz_cifar10(struct fuzz_input *input)
{
    struct dataset set = {0};
    uint8_t image[DATASET_PIXELS_MOST];

    const char *folder = dataset_files(input);

    if (dataset_read(&dataset_cifar10, folder, false, &set) == 0)
        FUZZ_MUST(dataset_get(&set, set.count - 1, image) < DATASET_CLASSES);
    dataset_destroy(&set);
    /* Reading must fail, since four of the five parts of the training set are missing. */
    FUZZ_MUST(dataset_read(&dataset_cifar10, folder, true, &set) < 0);
    dataset_destroy(&set);
}
