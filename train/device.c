/* SPDX-License-Identifier: BSD-3-Clause */
/* The devices by name: the CPU, and a GPU by a module that is loaded at run time. */
#include "device.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dist/backend.h>

#include "failure.h"
#include "grid.h"
#include "model.h"
#include "optimizer.h"

/* ---- the CPU: the model's own memory, its layers, the grid and the optimizer ---- */

struct device_of_cpu {
    struct device device;
    struct model *model;
    struct optimizer *optimizer;
    struct grid grid;
    struct buffer sums; /* empty where the model's gradients are the sums */
    bool rounds;        /* to the grid */
    bool sharded;
    int world;
    double losses[DEVICE_AHEAD]; /* of the last updates; the one at hand adds up in sums */
    int64_t updates;
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

static int device_cpu_open(const struct device_setup *setup, struct device **device_p)
{
    struct device_of_cpu *cpu = calloc(1, sizeof(*cpu));
    const size_t sums = setup->model->parameters + GRID_TAIL;
    int result = 0;

    if (!cpu)
        return failure("out of memory");
    cpu->device = (struct device){.kind = &device_cpu};
    cpu->model = setup->model;
    cpu->rounds = setup->grid;
    cpu->sharded = setup->sharded;
    cpu->world = setup->world;
    grid_start(setup->model, &cpu->grid);
    /* Sums of one micro-batch, or without grid, are the gradients themselves. */
    if (setup->grid && buffer_create(setup->group, sums, &cpu->sums) < 0)
        result = failure("out of memory for the sums of %zu gradients", sums);
    cpu->device.sums = setup->grid ? cpu->sums.floats : setup->model->gradients;
    if (result < 0 || optimizer_create(setup->optimizer, setup->model->parameters, setup->momentum,
                                       setup->weight_decay, &cpu->optimizer) < 0) {
        device_cpu_close(&cpu->device);
        return -1;
    }
    cpu->device.optimizer_states = optimizer_states(cpu->optimizer);
    cpu->device.state_count =
        setup->model->parameters * (size_t)cpu->device.optimizer_states + MODEL_MAX_TENSORS;
    if (cpu->sharded)
        optimizer_release(cpu->optimizer);
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
    float *steps = state + device->state_count - MODEL_MAX_TENSORS;

    optimizer_state(cpu->optimizer, save, state);
    memcpy(save ? steps : cpu->grid.steps, save ? cpu->grid.steps : steps, sizeof(cpu->grid.steps));
    return 0;
}

/* Forward and backward of the pass's samples. Their part of the loss is added to *loss_p. */
static int device_cpu_pass(struct model *model, const struct pass *pass, const float *images,
                           const uint8_t *labels, const struct model_listener *listener,
                           float *loss_p)
{
    const float *outputs;
    struct loss loss;

    model_begins(listener, false);
    outputs = model_forward(model, pass, images);
    loss = loss_nll(pass->batch, MODEL_CLASSES, outputs, labels, pass->weight,
                    model_output_gradient(model));
    if (!isfinite(loss.total))
        return model_blame(model, pass, images, loss.total);
    model_begins(listener, true);
    model_backward(model, pass, images, listener);
    *loss_p += (float)(loss.total * (double)pass->weight);
    return 0;
}

static int device_cpu_gradients(struct device *device, const struct pass *pass,
                                const struct batch *batch, int micro_batches,
                                const struct model_listener *listener)
{
    struct device_of_cpu *cpu = device_cpu_of(device);
    const size_t size = (size_t)shape_size(cpu->model->input);
    float *sum = &device->sums[cpu->model->parameters];
    struct pass part = *pass;

    if (!cpu->rounds) {
        *sum = pass->add ? *sum : 0.0F;
        return device_cpu_pass(cpu->model, pass, batch->images, batch->labels, listener, sum);
    }
    /* A micro-batch after the other, each rounded before it is added. */
    part.add = false;
    part.batch = batch->count / micro_batches;
    for (int m = 0; m < micro_batches; m++) {
        const int begin = m * part.batch;
        float loss = 0.0F;

        part.positions = batch->positions + begin;
        if (device_cpu_pass(cpu->model, &part, batch->images + (size_t)begin * size,
                            batch->labels + begin, listener, &loss) < 0)
            return -1;
        grid_add(&cpu->grid, cpu->model, cpu->world, loss, pass->add || m > 0, device->sums);
    }
    return 0;
}

static int device_cpu_update(struct device *device, float lr)
{
    struct device_of_cpu *cpu = device_cpu_of(device);

    if (cpu->rounds)
        grid_advance(&cpu->grid, cpu->model, device->sums);
    if (!cpu->sharded)
        optimizer_step(cpu->optimizer, lr, cpu->model->weights, device->sums);
    cpu->losses[cpu->updates++ % DEVICE_AHEAD] = (double)device->sums[cpu->model->parameters];
    return 0;
}

static void device_cpu_slice(struct device *device, float lr, const struct optimizer_slice *slice)
{
    optimizer_step_slice(device_cpu_of(device)->optimizer, lr, slice);
}

static int device_cpu_losses(struct device *device, int count, double *losses)
{
    const struct device_of_cpu *cpu = device_cpu_of(device);

    for (int i = 0; i < count; i++)
        losses[i] = cpu->losses[(cpu->updates - count + i) % DEVICE_AHEAD];
    return 0;
}

static int device_cpu_test(struct device *device, const struct pass *pass,
                           const struct batch *batch, struct loss *loss)
{
    const struct model *model = device_cpu_of(device)->model;
    const float *outputs = model_forward(device_cpu_of(device)->model, pass, batch->images);

    *loss = loss_nll(pass->batch, MODEL_CLASSES, outputs, batch->labels, 0.0F, NULL);
    return isfinite(loss->total) ? 0 : model_blame(model, pass, batch->images, loss->total);
}

const struct device_kind device_cpu = {
    .open = device_cpu_open,
    .close = device_cpu_close,
    .put = device_cpu_keep,
    .get = device_cpu_keep,
    .state = device_cpu_state,
    .gradients = device_cpu_gradients,
    .update = device_cpu_update,
    .slice = device_cpu_slice,
    .losses = device_cpu_losses,
    .test = device_cpu_test,
};

/* ---- GPUs: the module with their kernels is found at run time, so that the program needs no CUDA
 * ---- */

static const struct device_services device_cuda_services = {
    .failure = failure,
    .alloc = dist_alloc,
    .release = dist_free,
    .grid_start = grid_start,
};

/* The kernels, from the module. -1: it is not there, or cannot be loaded. */
static int device_cuda_find(const struct device_kind **kind_p)
{
    char path[PATH_MAX + 64], folders[2 * PATH_MAX], *at = folders;
    const struct device_kind *kind;
    device_cuda_fn find;
    void *handle;

    /* The folders where the library looks for its modules; for the message, with blanks between. */
    dist_list_module_folders(folders, sizeof(folders));
    while (*at) {
        const int length = (int)strcspn(at, "\n");

        snprintf(path, sizeof(path), "%.*s/train_mnist_cuda.so", length, at);
        if (access(path, F_OK) == 0)
            break;
        at += length;
        if (*at)
            *at++ = ' ';
    }
    if (!*at)
        return failure("--device cuda: there is no train_mnist_cuda.so in %s: build libdist where "
                       "configure finds CUDA's nvcc and cuBLAS, or use --device cpu",
                       folders);
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle)
        return failure("--device cuda: cannot load the kernels: %s: install CUDA's libraries, or "
                       "name their folder in LD_LIBRARY_PATH, or use --device cpu",
                       dlerror());
    find = (device_cuda_fn)(uintptr_t)dlsym(handle, DEVICE_CUDA_SYMBOL);
    kind = find ? find(DIST_VERSION_STRING, &device_cuda_services) : NULL;
    if (!kind) {
        dlclose(handle);
        return failure("--device cuda: %s is not of this version, %s: install both together", path,
                       DIST_VERSION_STRING);
    }
    *kind_p = kind;
    return 0;
}

/* ---- the devices by name ---- */

enum { DEVICE_MOST = 1 << 16 }; /* GPUs of one machine: more is a slip of the hand */

int device_parse(const char *name, bool *cuda_p, int *number_p)
{
    char *end = NULL;
    long number = -1;

    if (strncmp(name, "cuda:", 5) == 0 && name[5] >= '0' && name[5] <= '9')
        number = strtol(name + 5, &end, 10);
    if ((end && (*end || number >= DEVICE_MOST)) ||
        (!end && strcmp(name, "cpu") != 0 && strcmp(name, "cuda") != 0))
        return failure("--device %s: there is no such device; there are cpu, cuda, and cuda:N for "
                       "GPU number N",
                       name);
    *cuda_p = strcmp(name, "cpu") != 0;
    *number_p = (int)number;
    return 0;
}

int device_open(const char *name, struct device_setup *setup, struct device **device_p)
{
    const struct device_kind *kind = &device_cpu;
    bool cuda;

    if (device_parse(name, &cuda, &setup->number) < 0)
        return -1;
    if (cuda && device_cuda_find(&kind) < 0)
        return -1;
    return kind->open(setup, device_p);
}

void device_close(struct device *device)
{
    if (device)
        device->kind->close(device);
}
