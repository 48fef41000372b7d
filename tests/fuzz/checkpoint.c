/* SPDX-License-Identifier: BSD-3-Clause */
/* Checkpoints: arbitrary safetensors files, also loaded as those of a model and its training. */
#include "tests/fuzz/fuzz.h"

#include "train/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECKPOINT_STATE 4

/* A model with one layer of each kind that a file contains, as small as possible. */
static float checkpoint_values[32];
static struct model checkpoint_model = {.count = 4,
                                        .layers = {{.kind = &layer_conv,
                                                    .name = "conv1",
                                                    .kernel = 2,
                                                    .spatial = 4,
                                                    .inputs = 1,
                                                    .out.channels = 2,
                                                    .weight = checkpoint_values,
                                                    .bias = checkpoint_values + 8},
                                                   {.kind = &layer_pool},
                                                   {.kind = &layer_batchnorm,
                                                    .name = "bn1",
                                                    .spatial = 1,
                                                    .inputs = 1,
                                                    .out.channels = 2,
                                                    .weight = checkpoint_values + 10,
                                                    .bias = checkpoint_values + 12,
                                                    .mean = checkpoint_values + 14,
                                                    .variance = checkpoint_values + 16},
                                                   {.kind = &layer_dense,
                                                    .name = "fc1",
                                                    .spatial = 1,
                                                    .inputs = 2,
                                                    .out.channels = 2,
                                                    .weight = checkpoint_values + 18,
                                                    .bias = checkpoint_values + 22}}};

static struct training_state checkpoint_wanted(float *state)
{
    return (struct training_state){.epoch = -1,
                                   .seed = 1,
                                   .data = 2,
                                   .optimizer = "adadelta",
                                   .state = state,
                                   .count = CHECKPOINT_STATE};
}

/* Checks that data are unchanged after they are written and read again. */
static void checkpoint_again(struct training_state *rest, bool whole)
{
    float state[CHECKPOINT_STATE];
    struct training_state again = checkpoint_wanted(whole ? state : NULL);
    char path[64];
    struct image image;

    snprintf(path, sizeof(path), "%s/saved", fuzz_folder());
    if (whole) {
        FUZZ_MUST(checkpoint_image(path, &checkpoint_model, rest, &image) == 0);
        FUZZ_MUST(image_write(path, &image) == 0);
        image_free(&image);
    } else {
        FUZZ_MUST(checkpoint_save(path, &checkpoint_model, 1) == 0);
    }
    FUZZ_MUST(checkpoint_load(path, &checkpoint_model, &again) == whole);
    FUZZ_MUST(!whole || again.step == rest->step);
    FUZZ_MUST(!whole || memcmp(state, rest->state, sizeof(state)) == 0);
}

void fuzz_checkpoint(struct fuzz_input *input)
{
    float state[CHECKPOINT_STATE];
    struct training_state weights = checkpoint_wanted(NULL), rest = checkpoint_wanted(state);
    const char *path = fuzz_file(input);
    struct image image;
    int whole;

    if (image_read(path, &image) == 0)
        image_free(&image);
    if (checkpoint_load(path, &checkpoint_model, &weights) >= 0)
        checkpoint_again(&weights, false);
    whole = checkpoint_load(path, &checkpoint_model, &rest);
    if (whole == 1)
        checkpoint_again(&rest, true);
}
