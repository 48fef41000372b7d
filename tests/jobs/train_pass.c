/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One forward and backward pass of a model, for comparison with another program.
 *
 *     train_pass ARCH SIDE CHANNELS COUNT WEIGHTS INPUT RESULT
 *
 * INPUT: COUNT images of SIDE x SIDE pixels with interleaved channels, as float32, then COUNT
 * labels of one byte. RESULT.safetensors contains the gradients of the mean loss, and the running
 * means and variances after the pass. RESULT.outputs contains COUNT x 10 float32 of the pass, then
 * as many of an evaluation.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/checkpoint.h"
#include "train/failure.h"
#include "train/model.h"

static int complain(const char *what)
{
    fprintf(stderr, "train_pass: %s\n", what);
    return 1;
}

static float *read_images(const char *path, struct shape shape, int count, uint8_t *labels)
{
    const size_t size = (size_t)count * shape_size(shape);
    float *images = malloc(size * sizeof(float));
    FILE *file = fopen(path, "rb");

    if (!images || !file || fread(images, sizeof(float), size, file) != size ||
        fread(labels, 1, (size_t)count, file) != (size_t)count)
        exit(complain("cannot read the input"));
    fclose(file);
    return images;
}

/* Runs both passes; the model's weights are overwritten with the gradients. */
static void run(struct model *model, const struct pass *pass, const float *images,
                const uint8_t *labels, FILE *to)
{
    const size_t size = (size_t)pass->batch * MODEL_CLASSES;
    struct pass test = *pass;
    const float *outputs = model_forward(model, pass, images);

    fwrite(outputs, sizeof(float), size, to);
    loss_nll(pass->batch, MODEL_CLASSES, outputs, labels, pass->weight,
             model_output_gradient(model));
    model_backward(model, pass, images, NULL);
    test.training = false;
    fwrite(model_forward(model, &test, images), sizeof(float), size, to);
    memcpy(model->weights, model->gradients, model->parameters * sizeof(float));
}

int main(int argc, char *argv[])
{
    const int side = argc == 8 ? atoi(argv[2]) : 0, count = argc == 8 ? atoi(argv[4]) : 0;
    struct shape shape = {side, side, argc == 8 ? atoi(argv[3]) : 0};
    uint32_t positions[1024] = {0};
    struct pass pass = {.batch = count, .training = true, .positions = positions};
    struct model *model = NULL;
    uint8_t labels[1024];
    char path[4096];
    struct training_state rest = {.state = NULL};
    float *images;
    FILE *to;

    if (count < 1 || count > 1024)
        return complain("usage: ARCH SIDE CHANNELS COUNT WEIGHTS INPUT RESULT");
    pass.weight = 1.0F / (float)count;
    if (model_create(argv[1], shape, count, NULL, &model) < 0 ||
        checkpoint_load(argv[5], model, &rest) < 0)
        return complain(failure_text());
    images = read_images(argv[6], shape, count, labels);
    snprintf(path, sizeof(path), "%s.outputs", argv[7]);
    to = fopen(path, "wb");
    if (!to)
        return complain("cannot write the outputs");
    run(model, &pass, images, labels, to);
    snprintf(path, sizeof(path), "%s.safetensors", argv[7]);
    if (fclose(to) != 0 || checkpoint_save(path, model, 0) < 0)
        return complain(failure_text());
    free(images);
    model_destroy(model);
    return 0;
}
