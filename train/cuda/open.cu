/* SPDX-License-Identifier: BSD-3-Clause */
/* Making a GPU ready: which one it is, its memory, its stream. */
#include "open.h"

#include <stdlib.h>
#include <string.h>

#include "train/optimizer.h"

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

int cuda_check_all(struct cuda *cuda)
{
    return cuda_check(cuda, cudaGetLastError(), "a kernel") < 0
               ? -1
               : cuda_check_blas(cuda, cuda->blas_status, "a matrix product");
}

/* ---- which GPU ---- */

/* What the program asks for, else DIST_DEVICE, else by local rank. */
static int cuda_choose(const struct device_setup *setup, int gpus)
{
    const char *variable = getenv("DIST_DEVICE");

    if (setup->number >= 0)
        return setup->number;
    return variable && *variable ? atoi(variable) : setup->local_rank % gpus;
}

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
    int gpus = 0;
    const cudaError_t error = cudaGetDeviceCount(&gpus);

    if (error != cudaSuccess || gpus == 0)
        return cuda->services->failure(
            "--device cuda: there is no GPU here: %s: see whether nvidia-smi lists one and "
            "CUDA_VISIBLE_DEVICES allows it, or use --device cpu",
            error != cudaSuccess ? cudaGetErrorString(error) : "the driver lists none");
    cuda->gpu = cuda_choose(setup, gpus);
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

/* The kernels of each layer. */
static int cuda_open_kinds(struct cuda *cuda)
{
    for (int i = 0; i < cuda->host->count; i++) {
        const char *kind = cuda->host->layers[i].kind->name;

        cuda->kinds[i] = cuda_find_layer(kind);
        if (!cuda->kinds[i])
            return cuda->services->failure("--device cuda: there are no kernels for a layer of "
                                           "kind %s: use another --arch than %s, or --device cpu",
                                           kind, cuda->host->arch);
    }
    return 0;
}

/* Pointers of each layer into the GPU's memory. */
static void cuda_open_layers(struct cuda *cuda)
{
    struct model *model = &cuda->model;

    for (int i = 0; i < model->count; i++) {
        struct layer *layer = &model->layers[i];

        layer->scratch = model->scratch;
        if (!layer->name)
            continue;
        layer->weight = model->weights + (layer->weight - cuda->host->weights);
        layer->bias = model->weights + (layer->bias - cuda->host->weights);
        layer->dweight = model->gradients + (layer->weight - model->weights);
        layer->dbias = model->gradients + (layer->bias - model->weights);
    }
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
    return cuda->first && cuda->second && cuda->steps && cuda->most && cuda->losses &&
           cuda->correct && cuda->result && cuda->batch;
}

static bool cuda_open_pinned(struct cuda *cuda)
{
    for (int i = 0; i < CUDA_SLOTS; i++) {
        if (cudaHostAlloc(&cuda->pinned[i], cuda->batch_bytes, cudaHostAllocDefault) !=
                cudaSuccess ||
            cudaEventCreateWithFlags(&cuda->copied[i], cudaEventDisableTiming) != cudaSuccess)
            return false;
    }
    return cudaHostAlloc((void **)&cuda->ring, DEVICE_AHEAD * sizeof(float),
                         cudaHostAllocDefault) == cudaSuccess &&
           cudaHostAlloc((void **)&cuda->result_host, sizeof(struct cuda_result),
                         cudaHostAllocDefault) == cudaSuccess;
}

static int cuda_open_memory(struct cuda *cuda, const struct device_setup *setup)
{
    if (cuda_open_model(cuda, setup->capacity) && cuda_open_state(cuda, setup->capacity) &&
        cuda_open_pinned(cuda))
        return 0;
    return cuda->services->failure("GPU %d: out of memory for a model of %d samples a pass: %s: "
                                   "lower --batch-size",
                                   cuda->gpu, setup->capacity,
                                   cudaGetErrorString(cudaGetLastError()));
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

int cuda_open(struct cuda *cuda, const struct device_setup *setup)
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
    if (cuda_open_kinds(cuda) < 0 ||
        cuda_open_gpu(cuda, setup, setup->model->parameters + GRID_TAIL) < 0 ||
        cuda_open_stream(cuda) < 0 || cuda_open_memory(cuda, setup) < 0)
        return -1;
    cuda_open_layers(cuda);
    if (cuda_grid_start(cuda) < 0)
        return -1;
    return cuda_check(cuda, cudaDeviceSynchronize(), "making it ready");
}

/* After what was put on the stream has ended. */
void cuda_free(struct cuda *cuda)
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
