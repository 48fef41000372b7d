/* SPDX-License-Identifier: BSD-3-Clause */
/* The CPU as a device: the model's own memory, its layers, the grid and the optimizer. */
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "train/buffer.h"
#include "train/failure.h"
#include "train/model/grid.h"
#include "train/model/optimizer.h"

struct device_of_cpu {
    struct device device;
    struct model *model;
    struct optimizer *optimizer;
    struct grid grid;
    struct buffer sums; /* empty where the model's gradients are the sums */
    int world;
    double loss; /* of the last update */
};

static struct device_of_cpu *device_cpu_of(struct device *device)
{
    return (struct device_of_cpu *)device;
}

static void device_cpu_close(struct device *device)
{
    struct device_of_cpu *cpu = device_cpu_of(device);

    buffer_destroy(&cpu->sums);
    optimizer_destroy(cpu->optimizer);
    free(cpu);
}

/* One micro-batch needs no memory for sums besides the gradients themselves. */
static int device_cpu_open_sums(const struct device_setup *setup, struct device_of_cpu *cpu)
{
    const size_t count = setup->model->parameters + GRID_TAIL;

    cpu->device.sums = setup->model->gradients;
    if (setup->micro_batches == 1)
        return 0;
    if (buffer_create(setup->group, count, &cpu->sums) < 0)
        return failure("out of memory for the sums of %zu gradients", count);
    cpu->device.sums = cpu->sums.floats;
    return 0;
}

static int device_cpu_open(const struct device_setup *setup, struct device **device_p)
{
    struct device_of_cpu *cpu = calloc(1, sizeof(*cpu));

    if (!cpu)
        return failure("out of memory");
    cpu->device = (struct device){.kind = &device_cpu, .ahead = 1};
    cpu->model = setup->model;
    cpu->world = setup->world;
    grid_start(setup->model, &cpu->grid);
    if (device_cpu_open_sums(setup, cpu) < 0 ||
        optimizer_create(setup->optimizer, setup->model->parameters, setup->momentum,
                         setup->weight_decay, &cpu->optimizer) < 0) {
        device_cpu_close(&cpu->device);
        return -1;
    }
    cpu->device.state_count =
        optimizer_state_count(cpu->optimizer) + sizeof(cpu->grid.steps) / sizeof(float);
    *device_p = &cpu->device;
    return 0;
}

/* The model's weights are the device's. */
static int device_cpu_keep(struct device *device)
{
    (void)device;
    return 0;
}

static int device_cpu_state(struct device *device, bool save, float *state)
{
    struct device_of_cpu *cpu = device_cpu_of(device);
    float *steps = state + optimizer_state_count(cpu->optimizer);

    optimizer_state(cpu->optimizer, save, state);
    memcpy(save ? steps : cpu->grid.steps, save ? cpu->grid.steps : steps, sizeof(cpu->grid.steps));
    return 0;
}

/* Forward and backward of the samples from begin on; adds their gradients to the sums. */
static void device_cpu_micro_batch(struct device_of_cpu *cpu, const struct pass *pass,
                                   const struct batch *batch, int begin)
{
    const float *images = batch->images + (size_t)begin * MODEL_PIXELS;
    const float weight = 1.0F / (float)batch->count;
    struct model *model = cpu->model;
    const float *outputs = model_forward(model, pass, images);
    const struct loss loss = loss_nll(pass->batch, MODEL_CLASSES, outputs, batch->labels + begin,
                                      weight, model_output_gradient(model));

    model_backward(model, pass, images);
    grid_add(&cpu->grid, model, cpu->world, (float)(loss.total * (double)weight), begin > 0,
             cpu->device.sums);
}

static int device_cpu_gradients(struct device *device, const struct pass *pass,
                                const struct batch *batch, int micro_batches)
{
    struct pass part = *pass;

    part.batch = batch->count / micro_batches;
    for (int m = 0; m < micro_batches; m++) {
        const int begin = m * part.batch;

        part.positions = batch->positions + begin;
        device_cpu_micro_batch(device_cpu_of(device), &part, batch, begin);
    }
    return 0;
}

static int device_cpu_update(struct device *device, float lr)
{
    struct device_of_cpu *cpu = device_cpu_of(device);

    grid_advance(&cpu->grid, cpu->model, device->sums);
    optimizer_step(cpu->optimizer, lr, cpu->model->weights, device->sums);
    cpu->loss = (double)device->sums[cpu->model->parameters];
    return 0;
}

static int device_cpu_losses(struct device *device, int count, double *losses)
{
    if (count > 0)
        losses[0] = device_cpu_of(device)->loss;
    return 0;
}

static int device_cpu_test(struct device *device, const struct pass *pass,
                           const struct batch *batch, struct loss *loss)
{
    const float *outputs = model_forward(device_cpu_of(device)->model, pass, batch->images);

    *loss = loss_nll(pass->batch, MODEL_CLASSES, outputs, batch->labels, 0.0F, NULL);
    return 0;
}

const struct device_kind device_cpu = {
    .name = "cpu",
    .open = device_cpu_open,
    .close = device_cpu_close,
    .put = device_cpu_keep,
    .get = device_cpu_keep,
    .state = device_cpu_state,
    .gradients = device_cpu_gradients,
    .update = device_cpu_update,
    .losses = device_cpu_losses,
    .test = device_cpu_test,
};
