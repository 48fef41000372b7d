/* SPDX-License-Identifier: BSD-3-Clause */
/* Checkpoints: safetensors files, whatever they hold, and as those of a model. */
#include "tests/fuzz/fuzz.h"

#include "train/files/checkpoint.h"
#include "train/files/image.h"

#include "train/data/dataset.h"

#include <stdlib.h>

/* The program's smallest, made once. */
static struct model *checkpoint_model(void)
{
    static struct model *model;

    if (!model)
        FUZZ_MUST(model_create("mlp", dataset_mnist.shape, 1, NULL, &model) == 0);
    return model;
}

void fuzz_checkpoint(struct fuzz_input *input)
{
    struct checkpoint_rest rest = {.epoch = -1};
    const char *path = fuzz_file(input);
    struct image image;

    if (image_read(path, &image) == 0)
        image_free(&image);
    checkpoint_load(path, checkpoint_model(), &rest);
}
