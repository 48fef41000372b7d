/* SPDX-License-Identifier: BSD-3-Clause */
/* The CPU's optimizers, sums and passes; the loader of the GPU module. */
#include "device.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dist/backend.h>

#include "failure.h"

/* ---- optimizers over contiguous parameters ---- */

struct optimizer {
    /* Updates the parameters of a slice; uses its count, values, gradients and state. */
    void (*step)(const struct optimizer *optimizer, float lr, const struct dist_zero_slice *slice);
    size_t count;
    float momentum, weight_decay;
    int states;
    float *state[OPTIMIZER_STATES]; /* NULL: dist_zero owns the state */
};

/* The velocity starts at 0, and momentum * 0 + g is g, so the first step needs no special case. */
KERNEL static void optimizer_sgd(const struct optimizer *optimizer, float lr,
                                 const struct dist_zero_slice *slice)
{
    const float momentum = optimizer->momentum, decay = optimizer->weight_decay;
    const float *gradients = slice->gradients;
    float *weights = slice->values, *velocity = slice->state[0];
    const size_t count = slice->count;

#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        velocity[i] = momentum * velocity[i] + (gradients[i] + decay * weights[i]);
        weights[i] -= lr * velocity[i];
    }
}

/* The state contains running means of the squared gradients and of the squared updates. */
KERNEL static void optimizer_adadelta(const struct optimizer *optimizer, float lr,
                                      const struct dist_zero_slice *slice)
{
    const float rho = OPTIMIZER_RHO, epsilon = OPTIMIZER_EPSILON;
    const float decay = optimizer->weight_decay;
    const float *gradients = slice->gradients;
    float *weights = slice->values, *squares = slice->state[0], *moves = slice->state[1];
    const size_t count = slice->count;

#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        const float g = gradients[i] + decay * weights[i];
        const float square = rho * squares[i] + (1.0F - rho) * (g * g);
        const float move = sqrtf((moves[i] + epsilon) / (square + epsilon)) * g;

        squares[i] = square;
        moves[i] = rho * moves[i] + (1.0F - rho) * (move * move);
        weights[i] -= lr * move;
    }
}

/* Frees the state. With --zero, dist_zero owns the state, so this is called before the first step.
 */
static void optimizer_release(struct optimizer *optimizer)
{
    for (int k = 0; k < optimizer->states; k++) {
        free(optimizer->state[k]);
        optimizer->state[k] = NULL;
    }
}

void optimizer_destroy(struct optimizer *optimizer)
{
    if (optimizer)
        optimizer_release(optimizer);
    free(optimizer);
}

int optimizer_create(const char *name, size_t count, float momentum, float weight_decay,
                     struct optimizer **optimizer_p)
{
    const int adadelta = strcmp(name, "adadelta") == 0;
    struct optimizer *optimizer;

    if (!adadelta && strcmp(name, "sgd") != 0)
        return failure("unknown optimizer '%s': expected adadelta or sgd", name);
    optimizer = calloc(1, sizeof(*optimizer));
    if (!optimizer)
        return failure("out of memory for the optimizer");
    optimizer->step = adadelta ? optimizer_adadelta : optimizer_sgd;
    optimizer->count = count;
    optimizer->momentum = momentum;
    optimizer->weight_decay = weight_decay;
    optimizer->states = adadelta ? 2 : 1;
    for (int k = 0; k < optimizer->states; k++) {
        optimizer->state[k] = calloc(count, sizeof(float));
        if (!optimizer->state[k]) {
            optimizer_destroy(optimizer);
            return failure("out of memory for the optimizer's state of %zu parameters", count);
        }
    }
    *optimizer_p = optimizer;
    return 0;
}

void optimizer_step(struct optimizer *optimizer, float lr, float *weights, float *gradients)
{
    const struct dist_zero_slice slice = {.count = optimizer->count,
                                          .values = weights,
                                          .gradients = gradients,
                                          .state = optimizer->state};

    optimizer->step(optimizer, lr, &slice);
}

/* ---- sums of gradients that do not depend on the order of the additions ---- */

void grid_start(const struct model *model, struct grid *grid)
{
    *grid = (struct grid){.count = model->tensor_count};
    for (int i = 0; i < grid->count; i++)
        grid->steps[i] = ldexpf(1.0F, -GRID_BITS - 3);
}

/* Writes the rounded numbers to `to`, or adds them if `add`. Returns the largest magnitude. */
KERNEL static float grid_round(float step, size_t count, const float *from, bool add, float *to)
{
    const float shift = grid_shift(step);
    uint32_t most = 0;
    float largest;

#pragma omp simd reduction(max : most)
    for (size_t i = 0; i < count; i++) {
        uint32_t size;
        const float rounded = (from[i] + shift) - shift;

        /* Clear the sign. The remaining bits, as integers, have the order of the magnitudes. */
        memcpy(&size, &from[i], sizeof(size));
        size &= 0x7fffffffu;
        most = size > most ? size : most;
        to[i] = add ? to[i] + rounded : rounded;
    }
    memcpy(&largest, &most, sizeof(largest));
    return largest;
}

void grid_add(const struct grid *grid, const struct model *model, int scale, float loss, bool add,
              float *sums)
{
    const size_t tensors = (size_t)model->tensor_count;
    float *tail = &sums[model->parameters], *largest = tail + 1;

    for (size_t i = 0; i < tensors; i++) {
        const struct model_tensor *place = &model->tensors[i];
        const float step = grid->steps[i] * (float)scale;
        const float most = grid_round(step, place->count, model->gradients + place->offset, add,
                                      sums + place->offset);

        largest[i] = (add ? largest[i] : 0.0F) + grid_power(most);
    }
    *tail = (add ? *tail : 0.0F) + loss;
    if (!add)
        memset(largest + tensors, 0, (GRID_TAIL - 1 - tensors) * sizeof(*largest));
}

void grid_advance(struct grid *grid, const struct model *model, const float *sums)
{
    for (int i = 0; i < grid->count; i++)
        grid->steps[i] = ldexpf(grid_power(sums[model->parameters + 1 + (size_t)i]), -GRID_BITS);
}

/* ---- error message for a loss that is not finite ---- */

static bool is_finite(const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(values[i]))
            return false;
    }
    return true;
}

/*
 * Reports (failure_text) where the loss of a forward pass became infinite or NaN: the first layer
 * whose outputs are not finite, or whose parameters have not been finite since the previous step.
 * pass->training distinguishes a training step from a test. Returns -1.
 */
static int model_report_not_finite(const struct model *model, const struct pass *pass,
                                   const float *images, double loss)
{
    const bool seen = is_finite(images, (size_t)pass->batch * shape_size(model->input));
    char text[512] = ": the images are not finite";

    if (seen)
        strcpy(text, ", though all outputs are finite");
    for (int i = 0; seen && i < model->count; i++) {
        const struct layer *layer = &model->layers[i];
        const size_t size = (size_t)pass->batch * (size_t)shape_size(layer->out);
        const char *what = NULL, *hint = "";

        if (layer->name && (!is_finite(layer->weight, layer_weight_size(layer)) ||
                            !is_finite(layer->bias, layer_bias_size(layer))))
            what = "parameters", hint =
                                     ": its gradient was not finite in the previous step, or the "
                                     "learning rate is too high";
        else if (!is_finite(model->activations[i], size))
            what = "outputs";
        if (!what)
            continue;
        /* A layer without parameters is identified by its kind and index. */
        snprintf(text, sizeof(text),
                 ": the first %s that are not finite are those of layer %d, %s%s", what, i + 1,
                 layer->name ? layer->name : layer->kind->name, hint);
        break;
    }
    if (pass->training)
        return failure("step %" PRIu64 ": the loss is %f%s", pass->step + 1, loss, text);
    return failure("the test after step %" PRIu64 ": the loss is %f%s", pass->step, loss, text);
}

/* ---- the CPU: the model's own memory, its layers, the grid and the optimizer ---- */

struct device_of_cpu {
    struct device device;
    struct model *model;
    struct optimizer *optimizer;
    struct grid grid;
    struct buffer sums; /* empty if the model's gradients are used as the sums */
    bool rounds;        /* the sums are rounded to the grid */
    bool sharded;
    int world;
    double losses[DEVICE_AHEAD]; /* of the last updates; the loss of the current one accumulates in
                                    sums */
    int64_t updates;
};

static void device_cpu_close(struct device *device)
{
    struct device_of_cpu *cpu = (struct device_of_cpu *)device;

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
    /* Without grid, the gradients themselves are the sums. */
    if (setup->grid && buffer_create(setup->group, sums, &cpu->sums) < 0)
        result = failure("out of memory for the sums of %zu gradients", sums);
    cpu->device.sums = setup->grid ? cpu->sums.floats : setup->model->gradients;
    if (result < 0 || optimizer_create(setup->optimizer, setup->model->parameters, setup->momentum,
                                       setup->weight_decay, &cpu->optimizer) < 0) {
        device_cpu_close(&cpu->device);
        return -1;
    }
    cpu->device.optimizer_states = cpu->optimizer->states;
    cpu->device.state_count =
        setup->model->parameters * (size_t)cpu->device.optimizer_states + MODEL_MAX_TENSORS;
    if (cpu->sharded)
        optimizer_release(cpu->optimizer);
    *device_p = &cpu->device;
    return 0;
}

/* Does nothing: the device uses the model's weights in place. */
static int device_cpu_keep(struct device *device)
{
    (void)device;
    return 0;
}

static int device_cpu_state(struct device *device, bool save, float *state)
{
    struct device_of_cpu *cpu = (struct device_of_cpu *)device;
    struct optimizer *optimizer = cpu->optimizer;
    float *steps = state + device->state_count - MODEL_MAX_TENSORS;

    for (int k = 0; k < optimizer->states && optimizer->state[k]; k++, state += optimizer->count)
        memcpy(save ? state : optimizer->state[k], save ? optimizer->state[k] : state,
               optimizer->count * sizeof(float));
    memcpy(save ? steps : cpu->grid.steps, save ? cpu->grid.steps : steps, sizeof(cpu->grid.steps));
    return 0;
}

/*
 * Runs forward and backward for the samples of the pass and adds their part of the loss to *loss_p.
 */
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
        return model_report_not_finite(model, pass, images, loss.total);
    model_begins(listener, true);
    model_backward(model, pass, images, listener);
    *loss_p += (float)(loss.total * (double)pass->weight);
    return 0;
}

static int device_cpu_gradients(struct device *device, const struct pass *pass,
                                const struct batch *batch, int micro_batches,
                                const struct model_listener *listener)
{
    struct device_of_cpu *cpu = (struct device_of_cpu *)device;
    const size_t size = (size_t)shape_size(cpu->model->input);
    float *sum = &device->sums[cpu->model->parameters];
    struct pass part = *pass;

    if (!cpu->rounds) {
        *sum = pass->add ? *sum : 0.0F;
        return device_cpu_pass(cpu->model, pass, batch->images, batch->labels, listener, sum);
    }
    /* Process one micro-batch at a time; each is rounded before it is added. */
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
    struct device_of_cpu *cpu = (struct device_of_cpu *)device;

    if (cpu->rounds)
        grid_advance(&cpu->grid, cpu->model, device->sums);
    if (!cpu->sharded)
        optimizer_step(cpu->optimizer, lr, cpu->model->weights, device->sums);
    cpu->losses[cpu->updates++ % DEVICE_AHEAD] = (double)device->sums[cpu->model->parameters];
    return 0;
}

static void device_cpu_slice(struct device *device, float lr, const struct dist_zero_slice *slice)
{
    const struct optimizer *optimizer = ((struct device_of_cpu *)device)->optimizer;

    optimizer->step(optimizer, lr, slice);
}

static int device_cpu_losses(struct device *device, int count, double *losses)
{
    const struct device_of_cpu *cpu = (struct device_of_cpu *)device;

    for (int i = 0; i < count; i++)
        losses[i] = cpu->losses[(cpu->updates - count + i) % DEVICE_AHEAD];
    return 0;
}

static int device_cpu_test(struct device *device, const struct pass *pass,
                           const struct batch *batch, struct loss *loss)
{
    struct model *model = ((struct device_of_cpu *)device)->model;
    const float *outputs = model_forward(model, pass, batch->images);

    *loss = loss_nll(pass->batch, MODEL_CLASSES, outputs, batch->labels, 0.0F, NULL);
    return isfinite(loss->total) ? 0
                                 : model_report_not_finite(model, pass, batch->images, loss->total);
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

/* ---- GPUs: the kernels are in a module that is loaded at run time ---- */

static const struct device_services device_cuda_services = {
    .failure = failure,
    .alloc = dist_alloc,
    .release = dist_free,
    .grid_start = grid_start,
};

/* Loads the kernels from the module. -1: it does not exist or cannot be loaded. */
static int device_cuda_find(const struct device_kind **kind_p)
{
    char path[PATH_MAX + 64], folders[2 * PATH_MAX], *at = folders;
    const struct device_kind *kind;
    device_cuda_fn find;
    void *handle;

    /*
     * The directories in which the library searches its modules; newlines become blanks for the
     * message.
     */
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
        return failure(
            "--device cuda: no train_mnist_cuda.so in %s: build libdist on a system where "
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
        return failure("--device cuda: %s has another version than this program, %s: install both "
                       "from one build",
                       path, DIST_VERSION_STRING);
    }
    *kind_p = kind;
    return 0;
}

/* ---- devices by name ---- */

enum { DEVICE_MOST = 1 << 16 }; /* limit on GPU numbers, to detect typing errors */

int device_parse(const char *name, bool *cuda_p, int *number_p)
{
    char *end = NULL;
    long number = -1;

    if (strncmp(name, "cuda:", 5) == 0 && name[5] >= '0' && name[5] <= '9')
        number = strtol(name + 5, &end, 10);
    if ((end && (*end || number >= DEVICE_MOST)) ||
        (!end && strcmp(name, "cpu") != 0 && strcmp(name, "cuda") != 0))
        return failure(
            "--device %s: unknown device, expected cpu, cuda, or cuda:N for GPU number N", name);
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
