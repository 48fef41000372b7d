/* SPDX-License-Identifier: BSD-3-Clause */
/* The GPU as a device: batches go there, losses come back, the rest stays. */
#include "open.h"

#include <stdlib.h>
#include <string.h>

static const struct device_services *cuda_services;

static struct cuda *cuda_of(struct device *device)
{
    return (struct cuda *)device;
}

static void cuda_device_close(struct device *device)
{
    cuda_free(cuda_of(device));
    free(device);
}

/* ---- weights, and what the optimizer remembers ---- */

/* Waits for it. `there` is memory of the GPU, `here` of the host. */
static int cuda_copy(struct cuda *cuda, float *there, float *here, size_t count, bool save)
{
    const char *what = save ? "copying from it" : "copying to it";
    cudaError_t error =
        cudaMemcpyAsync(save ? here : there, save ? there : here, count * sizeof(float),
                        save ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, cuda->stream);

    if (cuda_check(cuda, error, what) < 0)
        return -1;
    return cuda_check(cuda, cudaStreamSynchronize(cuda->stream), what);
}

static int cuda_put(struct device *device)
{
    struct cuda *cuda = cuda_of(device);

    return cuda_copy(cuda, cuda->model.weights, cuda->host->weights, cuda->model.parameters, false);
}

static int cuda_get(struct device *device)
{
    struct cuda *cuda = cuda_of(device);

    return cuda_copy(cuda, cuda->model.weights, cuda->host->weights, cuda->model.parameters, true);
}

/* In the CPU's order: the optimizer's, then the grid's. */
static int cuda_state(struct device *device, bool save, float *state)
{
    struct cuda *cuda = cuda_of(device);
    const size_t parameters = cuda->model.parameters;

    if (cuda_copy(cuda, cuda->first, state, parameters, save) < 0)
        return -1;
    state += parameters;
    if (cuda->adadelta) {
        if (cuda_copy(cuda, cuda->second, state, parameters, save) < 0)
            return -1;
        state += parameters;
    }
    return cuda_copy(cuda, cuda->steps, state, CUDA_GRID_STEPS, save);
}

/* ---- batches ---- */

/* images | positions | labels, of count samples: one copy carries all. */
static struct cuda_batch cuda_batch_at(const struct cuda *cuda, void *memory, size_t count)
{
    struct cuda_batch batch;

    batch.images = (float *)memory;
    batch.positions = (uint32_t *)(batch.images + count * cuda_pixels(cuda));
    batch.labels = (uint8_t *)(batch.positions + count);
    return batch;
}

/* Waits for nothing but the batch before the last, whose memory it takes. */
static int cuda_upload(struct cuda *cuda, const struct batch *batch, struct cuda_batch *there)
{
    const size_t count = (size_t)batch->count;
    const size_t bytes = count * (cuda_pixels(cuda) * sizeof(float) + sizeof(uint32_t) + 1);
    const int slot = cuda->slot++ % CUDA_SLOTS;
    const struct cuda_batch here = cuda_batch_at(cuda, cuda->pinned[slot], count);

    if (cuda->copying[slot] &&
        cuda_check(cuda, cudaEventSynchronize(cuda->copied[slot]), "copying a batch to it") < 0)
        return -1;
    memcpy(here.images, batch->images, count * cuda_pixels(cuda) * sizeof(float));
    memcpy(here.positions, batch->positions, count * sizeof(uint32_t));
    memcpy(here.labels, batch->labels, count);
    cuda->copying[slot] = true;
    *there = cuda_batch_at(cuda, cuda->batch, count);
    if (cuda_check(cuda,
                   cudaMemcpyAsync(cuda->batch, cuda->pinned[slot], bytes, cudaMemcpyHostToDevice,
                                   cuda->stream),
                   "copying a batch to it") < 0)
        return -1;
    return cuda_check(cuda, cudaEventRecord(cuda->copied[slot], cuda->stream),
                      "copying a batch to it");
}

/* Forward and backward of the pass's samples. */
static void cuda_pass(struct cuda *cuda, const struct pass *pass, const float *images,
                      const uint8_t *labels, const struct model_listener *listener)
{
    cuda_forward(cuda, pass, images);
    cuda_loss(cuda, pass->batch, labels, pass->weight,
              cuda->model.deltas[(cuda->model.count - 1) % 2]);
    cuda_backward(cuda, pass, images, listener);
}

/* A micro-batch after the other, each rounded before it is added. */
static void cuda_rounded(struct cuda *cuda, const struct pass *pass, const struct cuda_batch *there,
                         int micro_batches)
{
    struct pass part = *pass;

    part.add = false;
    part.batch = pass->batch / micro_batches;
    for (int m = 0; m < micro_batches; m++) {
        const size_t begin = (size_t)m * part.batch;

        part.positions = there->positions + begin;
        cuda_pass(cuda, &part, there->images + begin * cuda_pixels(cuda), there->labels + begin,
                  NULL);
        cuda_grid_add(cuda, pass->weight, pass->add || m > 0);
    }
}

static int cuda_gradients(struct device *device, const struct pass *pass, const struct batch *batch,
                          int micro_batches, const struct model_listener *listener)
{
    struct cuda *cuda = cuda_of(device);
    struct cuda_batch there;
    struct pass part = *pass;

    if (cuda_upload(cuda, batch, &there) < 0)
        return -1;
    part.positions = there.positions;
    if (cuda->rounds) {
        cuda_rounded(cuda, &part, &there, micro_batches);
    } else {
        cuda_pass(cuda, &part, there.images, there.labels, listener);
        cuda_add_loss(cuda, pass->weight, pass->add);
    }
    return cuda_check_all(cuda);
}

static int cuda_test(struct device *device, const struct pass *pass, const struct batch *batch,
                     struct loss *loss)
{
    struct cuda *cuda = cuda_of(device);
    struct cuda_batch there;
    struct pass part = *pass;

    if (cuda_upload(cuda, batch, &there) < 0)
        return -1;
    part.positions = there.positions;
    cuda_forward(cuda, &part, there.images);
    cuda_loss(cuda, batch->count, there.labels, 0.0F, NULL);
    cudaMemcpyAsync(cuda->result_host, cuda->result, sizeof(*cuda->result), cudaMemcpyDeviceToHost,
                    cuda->stream);
    if (cuda_check(cuda, cudaStreamSynchronize(cuda->stream), "testing") < 0 ||
        cuda_check_all(cuda) < 0)
        return -1;
    loss->total = cuda->result_host->total;
    loss->correct = cuda->result_host->correct;
    return 0;
}

/* ---- updates ---- */

static int cuda_update(struct device *device, float lr)
{
    struct cuda *cuda = cuda_of(device);

    if (cuda->rounds)
        cuda_grid_advance(cuda);
    cuda_optimizer_step(cuda, lr);
    cudaMemcpyAsync(&cuda->ring[cuda->updates++ % DEVICE_AHEAD],
                    device->sums + cuda->model.parameters, sizeof(float), cudaMemcpyDeviceToHost,
                    cuda->stream);
    return cuda_check_all(cuda);
}

static int cuda_losses(struct device *device, int count, double *losses)
{
    struct cuda *cuda = cuda_of(device);

    if (cuda_check(cuda, cudaStreamSynchronize(cuda->stream), "training") < 0)
        return -1;
    for (int i = 0; i < count; i++)
        losses[i] = (double)cuda->ring[(cuda->updates - count + i) % DEVICE_AHEAD];
    return 0;
}

/* ---- the module ---- */

static int cuda_device_open(const struct device_setup *setup, struct device **device_p);

static const struct device_kind cuda_kind = {
    "cuda",   cuda_device_open, cuda_device_close, cuda_put,
    cuda_get, cuda_state,       cuda_gradients,    cuda_update,
    NULL,     cuda_losses,      cuda_test,
};

static int cuda_device_open(const struct device_setup *setup, struct device **device_p)
{
    struct cuda *cuda = (struct cuda *)calloc(1, sizeof(*cuda));

    if (!cuda)
        return cuda_services->failure("out of memory");
    cuda->services = cuda_services;
    cuda->device.kind = &cuda_kind;
    cuda->device.streamed = true;
    if (cuda_open(cuda, setup) < 0) {
        cuda_device_close(&cuda->device);
        return -1;
    }
    cuda->device.state_count = cuda->model.parameters * (cuda->adadelta ? 2 : 1) + CUDA_GRID_STEPS;
    *device_p = &cuda->device;
    return 0;
}

extern "C" const struct device_kind *train_mnist_cuda(const char *version,
                                                      const struct device_services *services)
{
    if (strcmp(version, DIST_VERSION_STRING) != 0)
        return NULL;
    cuda_services = services;
    return &cuda_kind;
}
