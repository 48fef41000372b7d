/* SPDX-License-Identifier: BSD-3-Clause */
/* Files of images: IDX, plain and compressed, and CIFAR-10's. */
#include "tests/fuzz/fuzz.h"

#include "train/data/dataset.h"
#include "train/data/idx.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
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

static char dataset_folder[] = "/tmp/dist-fuzz-XXXXXX";

static void dataset_remove(void)
{
    char path[64];

    snprintf(path, sizeof(path), "%s/test_batch.bin", dataset_folder);
    unlink(path);
    rmdir(dataset_folder);
}

/* A folder whose test set is the input's file, wherever that is this time. */
static const char *dataset_test_set(struct fuzz_input *input)
{
    static bool made;
    const char *file = fuzz_file(input);
    char path[64];

    if (!made)
        FUZZ_MUST(mkdtemp(dataset_folder) && atexit(dataset_remove) == 0);
    made = true;
    snprintf(path, sizeof(path), "%s/test_batch.bin", dataset_folder);
    unlink(path);
    FUZZ_MUST(symlink(file, path) == 0);
    return dataset_folder;
}

void fuzz_cifar10(struct fuzz_input *input)
{
    struct dataset set = {0};
    uint8_t image[DATASET_PIXELS_MOST];

    if (dataset_read(&dataset_cifar10, dataset_test_set(input), false, &set) == 0)
        FUZZ_MUST(dataset_get(&set, set.count - 1, image) < DATASET_CLASSES);
    dataset_destroy(&set);
}
