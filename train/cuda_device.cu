/* SPDX-License-Identifier: BSD-3-Clause */
/* The GPU as a device: making it ready; batches go there, losses come back, the rest stays. */
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

/* ---- making it ready: which one it is, its memory, its stream ---- */

int cuda_check(struct cuda *cuda, cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return 0;
    return cuda->services->failure("GPU %d: %s: %s", cuda->gpu, what, cudaGetErrorString(error));
}

static int cuda_check_blas(struct cuda *cuda, cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return 0;
    return cuda->services->failure("GPU %d: cuBLAS: %s: status %d", cuda->gpu, what, (int)status);
}

/* What has failed since the last call: launches of kernels, and matrix products. */
static int cuda_check_all(struct cuda *cuda)
{
    return cuda_check(cuda, cudaGetLastError(), "a kernel") < 0
               ? -1
               : cuda_check_blas(cuda, cuda->blas_status, "a matrix product");
}

/* ---- which GPU ---- */

/* The backend's memory if that is a GPU's, which then is ours; else it is given back. */
static int cuda_open_shared(struct cuda *cuda, const struct device_setup *setup, size_t bytes)
{
    struct cudaPointerAttributes where;
    void *memory = NULL;

    if (!setup->group || cuda->services->alloc(setup->group, bytes, &memory) != DIST_OK)
        return 0;
    memset(&where, 0, sizeof(where));
    if (cudaPointerGetAttributes(&where, memory) != cudaSuccess)
        cudaGetLastError();
    if (where.type != cudaMemoryTypeDevice) {
        cuda->services->release(setup->group, memory);
        return 0;
    }
    if (setup->number >= 0 && setup->number != where.device) {
        cuda->services->release(setup->group, memory);
        return cuda->services->failure("--device cuda:%d: the backend's memory is on GPU %d",
                                       setup->number, where.device);
    }
    cuda->device.sums = (float *)memory;
    cuda->shared = true;
    cuda->gpu = where.device;
    return 0;
}

static int cuda_open_gpu(struct cuda *cuda, const struct device_setup *setup, size_t sums)
{
    const char *variable = getenv("DIST_DEVICE");
    int gpus = 0;
    const cudaError_t error = cudaGetDeviceCount(&gpus);

    if (error != cudaSuccess || gpus == 0)
        return cuda->services->failure(
            "--device cuda: there is no GPU here: %s: see whether nvidia-smi lists one and "
            "CUDA_VISIBLE_DEVICES allows it, or use --device cpu",
            error != cudaSuccess ? cudaGetErrorString(error) : "the driver lists none");
    cuda->gpu = setup->number >= 0      ? setup->number
                : variable && *variable ? atoi(variable)
                                        : setup->local_rank % gpus;
    if (cuda->gpu < 0 || cuda->gpu >= gpus)
        return cuda->services->failure("--device cuda: there is no GPU %d: this rank sees %d",
                                       cuda->gpu, gpus);
    /* First of all: else the questions about memory would make a context on GPU 0. */
    if (cuda_check(cuda, cudaSetDevice(cuda->gpu), "choosing it") < 0 ||
        cuda_open_shared(cuda, setup, sums * sizeof(float)) < 0)
        return -1;
    return cuda_check(cuda, cudaSetDevice(cuda->gpu), "choosing it");
}

/* ---- memory ---- */

/* Zeroed. NULL: there is none. Freed by cuda_free. */
static void *cuda_alloc(struct cuda *cuda, size_t bytes)
{
    void *memory = NULL;

    bytes = bytes > 0 ? bytes : 1;
    if (cuda->owned_count == CUDA_OWNED || cudaMalloc(&memory, bytes) != cudaSuccess)
        return NULL;
    cuda->owned[cuda->owned_count++] = memory;
    return cudaMemset(memory, 0, bytes) == cudaSuccess ? memory : NULL;
}

static float *cuda_floats(struct cuda *cuda, size_t count)
{
    return (float *)cuda_alloc(cuda, count * sizeof(float));
}

/* The shapes of the host's model, and memory of the GPU where that has the host's. */
static bool cuda_open_model(struct cuda *cuda, int capacity)
{
    const int chunk = capacity < CUDA_CHUNK ? capacity : CUDA_CHUNK;
    struct model *model = &cuda->model;
    size_t widest = 1, windows = 1;
    bool complete = true;

    *model = *cuda->host;
    model->weights = cuda_floats(cuda, model->parameters);
    if (!cuda->shared)
        cuda->device.sums = cuda_floats(cuda, model->parameters + GRID_TAIL);
    model->gradients = cuda->rounds ? cuda_floats(cuda, model->parameters) : cuda->device.sums;
    for (int i = 0; i < model->count; i++) {
        const struct layer *layer = &model->layers[i];
        const size_t size = shape_size(layer->out),
                     wanted = size / layer->out.channels * layer->spatial * layer->inputs;

        model->activations[i] = cuda_floats(cuda, size * capacity);
        complete = complete && model->activations[i];
        widest = size > widest ? size : widest;
        windows = layer->kernel > 0 && layer->name && wanted > windows ? wanted : windows;
    }
    for (int i = 0; i < 2; i++) {
        model->deltas[i] = cuda_floats(cuda, widest * capacity);
        cuda->partial[i] = cuda_floats(cuda, widest * capacity / CUDA_ROWS + widest);
        complete = complete && model->deltas[i] && cuda->partial[i];
    }
    model->scratch = cuda_floats(cuda, windows * chunk);
    return complete && model->weights && cuda->device.sums && model->gradients && model->scratch;
}

static bool cuda_open_state(struct cuda *cuda, int capacity)
{
    const size_t parameters = cuda->model.parameters;

    cuda->first = cuda_floats(cuda, parameters);
    cuda->second = cuda_floats(cuda, cuda->adadelta ? parameters : 1);
    cuda->steps = cuda_floats(cuda, GRID_TAIL);
    cuda->most = (unsigned *)cuda_alloc(cuda, GRID_TAIL * sizeof(unsigned));
    cuda->losses = cuda_floats(cuda, capacity);
    cuda->correct = (int *)cuda_alloc(cuda, capacity * sizeof(int));
    cuda->result = (struct cuda_result *)cuda_alloc(cuda, sizeof(struct cuda_result));
    cuda->batch = cuda_alloc(cuda, cuda->batch_bytes);
    for (int i = 0; i < CUDA_SLOTS; i++) {
        if (cudaHostAlloc(&cuda->pinned[i], cuda->batch_bytes, cudaHostAllocDefault) !=
                cudaSuccess ||
            cudaEventCreateWithFlags(&cuda->copied[i], cudaEventDisableTiming) != cudaSuccess)
            return false;
    }
    if (cudaHostAlloc((void **)&cuda->ring, DEVICE_AHEAD * sizeof(float), cudaHostAllocDefault) !=
            cudaSuccess ||
        cudaHostAlloc((void **)&cuda->result_host, sizeof(struct cuda_result),
                      cudaHostAllocDefault) != cudaSuccess)
        return false;
    return cuda->first && cuda->second && cuda->steps && cuda->most && cuda->losses &&
           cuda->correct && cuda->result && cuda->batch;
}

/* No tensor cores and no shortcuts: products in float32, as the CPU's. */
static int cuda_open_stream(struct cuda *cuda)
{
    if (cuda_check(cuda, cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking),
                   "making a stream") < 0)
        return -1;
    cuda->device.stream = cuda->stream;
    if (cuda_check_blas(cuda, cublasCreate(&cuda->blas), "starting") < 0 ||
        cuda_check_blas(cuda, cublasSetStream(cuda->blas, cuda->stream), "setting its stream") < 0)
        return -1;
    return cuda_check_blas(cuda, cublasSetMathMode(cuda->blas, CUBLAS_PEDANTIC_MATH),
                           "asking for float32");
}

/* cuda is zeroed but for device and services; cuda_free is called either way. */
static int cuda_open(struct cuda *cuda, const struct device_setup *setup)
{
    cuda->host = setup->model;
    cuda->world = setup->world;
    cuda->rounds = setup->grid;
    cuda->adadelta = strcmp(setup->optimizer, "adadelta") == 0;
    cuda->momentum = setup->momentum;
    cuda->weight_decay = setup->weight_decay;
    cuda->batch_bytes =
        (size_t)setup->capacity * (cuda_pixels(cuda) * sizeof(float) + sizeof(uint32_t) + 1);
    if (!cuda->adadelta && strcmp(setup->optimizer, "sgd") != 0)
        return cuda->services->failure("unknown optimizer '%s': there are adadelta and sgd",
                                       setup->optimizer);
    for (int i = 0; i < cuda->host->count; i++) {
        const char *kind = cuda->host->layers[i].kind->name;

        cuda->kinds[i] = cuda_find_layer(kind);
        if (!cuda->kinds[i])
            return cuda->services->failure("--device cuda: there are no kernels for a layer of "
                                           "kind %s: use another --arch than %s, or --device cpu",
                                           kind, cuda->host->arch);
    }
    if (cuda_open_gpu(cuda, setup, setup->model->parameters + GRID_TAIL) < 0 ||
        cuda_open_stream(cuda) < 0)
        return -1;
    if (!cuda_open_model(cuda, setup->capacity) || !cuda_open_state(cuda, setup->capacity))
        return cuda->services->failure("GPU %d: out of memory for a model of %d samples a pass: "
                                       "%s: lower --batch-size",
                                       cuda->gpu, setup->capacity,
                                       cudaGetErrorString(cudaGetLastError()));
    /* Pointers of each layer into the GPU's memory. */
    for (int i = 0; i < cuda->model.count; i++) {
        struct model *model = &cuda->model;
        struct layer *layer = &model->layers[i];

        layer->scratch = model->scratch;
        if (!layer->name)
            continue;
        layer->weight = model->weights + (layer->weight - cuda->host->weights);
        layer->bias = model->weights + (layer->bias - cuda->host->weights);
        layer->dweight = model->gradients + (layer->weight - model->weights);
        layer->dbias = model->gradients + (layer->bias - model->weights);
    }
    if (cuda_grid_start(cuda) < 0)
        return -1;
    return cuda_check(cuda, cudaDeviceSynchronize(), "making it ready");
}

/* After what was put on the stream has ended. */
static void cuda_free(struct cuda *cuda)
{
    if (cuda->stream)
        cudaStreamSynchronize(cuda->stream);
    if (cuda->shared)
        cuda->services->release(NULL, cuda->device.sums);
    for (int i = 0; i < cuda->owned_count; i++)
        cudaFree(cuda->owned[i]);
    for (int i = 0; i < CUDA_SLOTS; i++) {
        cudaFreeHost(cuda->pinned[i]);
        if (cuda->copied[i])
            cudaEventDestroy(cuda->copied[i]);
    }
    cudaFreeHost(cuda->ring);
    cudaFreeHost(cuda->result_host);
    if (cuda->blas)
        cublasDestroy(cuda->blas);
    if (cuda->stream)
        cudaStreamDestroy(cuda->stream);
}

/* ---- the device ---- */

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

static int cuda_gradients(struct device *device, const struct pass *pass, const struct batch *batch,
                          int micro_batches, const struct model_listener *listener)
{
    struct cuda *cuda = cuda_of(device);
    struct cuda_batch there;
    struct pass part = *pass;

    if (cuda_upload(cuda, batch, &there) < 0)
        return -1;
    part.positions = there.positions;
    if (!cuda->rounds) {
        cuda_pass(cuda, &part, there.images, there.labels, listener);
        cuda_add_loss(cuda, pass->weight, pass->add);
        return cuda_check_all(cuda);
    }
    /* A micro-batch after the other, each rounded before it is added. */
    part.add = false;
    part.batch = pass->batch / micro_batches;
    for (int m = 0; m < micro_batches; m++) {
        const size_t begin = (size_t)m * part.batch;

        part.positions = there.positions + begin;
        cuda_pass(cuda, &part, there.images + begin * cuda_pixels(cuda), there.labels + begin,
                  NULL);
        cuda_grid_add(cuda, pass->weight, pass->add || m > 0);
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
    cuda_device_open, cuda_device_close, cuda_put, cuda_get,    cuda_state,
    cuda_gradients,   cuda_update,       NULL,     cuda_losses, cuda_test,
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
