/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a rank computes, on the CPU or on a GPU: all that the trainer asks of either. */
#ifndef TRAIN_DEVICE_H
#define TRAIN_DEVICE_H

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dist/zero.h>

#include "dataset.h"
#include "kernel.h"
#include "layer.h"
#include "model.h"

/* ---- optimizers over flat parameter memory: SGD with momentum, Adadelta ---- */

/* Adadelta's constants. */
#define OPTIMIZER_RHO 0.9F
#define OPTIMIZER_EPSILON 1e-6F

#define OPTIMIZER_STATES 2 /* numbers that one keeps for a parameter, at most */

struct optimizer;

/*
 * name is "sgd" (v = momentum v + g; w -= lr v, the first v being g) or "adadelta"
 * (Zeiler 2012, with rho 0.9 and epsilon 1e-6; momentum is not used). Both as PyTorch
 * has them; weight decay adds decay * w to the gradient. count: parameters. On success
 * *optimizer_p is the caller's. -1: unknown name, out of memory.
 */
int optimizer_create(const char *name, size_t count, float momentum, float weight_decay,
                     struct optimizer **optimizer_p);
void optimizer_destroy(struct optimizer *optimizer); /* NULL is accepted */

/*
 * Moves the parameters one step. No sum runs across elements and nothing is fused, so the
 * same inputs give the same bits on every processor.
 */
void optimizer_step(struct optimizer *optimizer, float lr, float *weights, float *gradients);

/* ---- sums of gradients that do not depend on the order of the additions ---- */

/*
 * Training is chaotic: a difference in the last bit of a gradient, which is what another
 * order of additions makes, grows to the size of the loss within some ten steps. So a
 * step is cut into micro-batches that are the same for any number of ranks, and each
 * one's gradients are rounded to multiples of a step so large that all sums of them are
 * exact: float32 holds 24 bits,
 *
 *     16 bits of gradient | 8 bits for adding up to 8 and for gradients that grow
 *
 * Sums of multiples are then the same bits in any order, through any algorithm. The step
 * is a power of two, one for each tensor, from the largest gradients of the step before.
 * A gradient too large for it is not harmed, its sum is merely rounded as usual.
 */
struct grid {
    int count;                      /* tensors: a weight and a bias of each layer */
    float steps[MODEL_MAX_TENSORS]; /* of the mean over all ranks; 0: no rounding */
};

/* Floats that the sums carry behind the gradients: the loss, then the tensors' largest. */
enum { GRID_TAIL = 1 + MODEL_MAX_TENSORS };
static_assert((int)GRID_TAIL <= (int)MODEL_TAIL, "the gradients have room for the tail");

/* The largest gradient, in steps: grid_power of a power of two is twice that, which leaves 2^16. */
enum { GRID_BITS = 17 };

/* The next power of two, so that sums of them are exact as well; 0 for what is no number. */
ANYWHERE float grid_power(float most)
{
    int exponent = 0;

    if (!(most > 0.0F) || isinf(most))
        return 0.0F;
    frexpf(most, &exponent);
    return ldexpf(1.0F, exponent);
}

/*
 * Adding 1.5 * 2^23 steps leaves no room for what is below a step; taking it away again leaves the
 * rounded number.
 */
ANYWHERE float grid_shift(float step)
{
    return 0x1.8p23F * step;
}

/* Steps for the first batch, whose gradients are taken to be below 1. */
void grid_start(const struct model *model, struct grid *grid);

/*
 * sums (model->parameters + GRID_TAIL floats) becomes, or is increased by (`add`), the
 * model's gradients, rounded. The largest of each tensor, as a power of two, and loss
 * follow in the tail. scale: how often this rank's sums go into the mean, that is the
 * number of ranks. sums may be model->gradients unless `add`.
 */
void grid_add(const struct grid *grid, const struct model *model, int scale, float loss, bool add,
              float *sums);

/* Sets the steps from the tail of the sums, once they have been averaged over the ranks. */
void grid_advance(struct grid *grid, const struct model *model, const float *sums);

/* ---- devices ---- */

/*
 *     trainer.c            batches, epochs, what is printed
 *         |  struct device_kind
 *         +-- device.c, the CPU              layers, grid and optimizer
 *         +-- device.c, GPUs -- dlopen --> cuda.cu: the same arithmetic as kernels
 *
 * Functions return 0, or -1 with a text (failure_text). None communicates.
 */
struct device;

/* What a device is opened for. */
struct device_setup {
    struct model *model; /* its shapes, and the host's copy of the weights; outlives the device */
    dist_group *group;   /* whose ranks get the sums; NULL: nobody's */
    int capacity;        /* samples in one batch at most */
    bool grid;           /* sums are rounded so that their order does not matter: see struct grid */
    bool sharded;        /* the optimizer's state is not here, and updates are of slices */
    int world;           /* ranks whose sums go into the mean */
    const char *optimizer;
    float momentum, weight_decay;
    int number; /* of the GPU; -1: by local rank */
    int local_rank;
};

struct device_kind {
    /* On success *device_p is the caller's, for close. The device's weights are not set. */
    int (*open)(const struct device_setup *setup, struct device **device_p);
    void (*close)(struct device *device);
    /* The weights, from and to the host's copy, which for the CPU is the only one. */
    int (*put)(struct device *device);
    int (*get)(struct device *device);
    /*
     * All but the weights that the next updates depend on, device->state_count floats: copied to
     * the host (save), or from it.
     */
    int (*state)(struct device *device, bool save, float *state);
    /*
     * sums becomes the gradients of the batch, or grows by them if pass->add. With grid: the batch
     * has micro_batches parts of one size behind each other, and GRID_TAIL floats follow, and
     * listener->ready must be NULL. Without, it is told of each tensor whose gradient is complete,
     * or on its way to be on the stream. listener may be NULL. The batch may be used again at once.
     */
    int (*gradients)(struct device *device, const struct pass *pass, const struct batch *batch,
                     int micro_batches, const struct model_listener *listener);
    /* Moves the weights, once sums is the mean over the ranks. Sharded: they have been moved. */
    int (*update)(struct device *device, float lr);
    /* Moves some weights, if sharded. NULL: it cannot. */
    void (*slice)(struct device *device, float lr, const struct dist_zero_slice *slice);
    /*
     * The losses of the last `count` updates, at most DEVICE_AHEAD; waits for them. With grid the
     * mean over the ranks, else this rank's own.
     */
    int (*losses)(struct device *device, int count, double *losses);
    /* The loss of a batch without training. */
    int (*test)(struct device *device, const struct pass *pass, const struct batch *batch,
                struct loss *loss);
};

enum { DEVICE_AHEAD = 256 }; /* updates whose losses are kept: so far a host may be ahead */

struct device {
    const struct device_kind *kind;
    float *sums; /* what the ranks average: as the model's tensors, then GRID_TAIL floats */
    size_t state_count;
    int optimizer_states; /* numbers that the optimizer keeps for a weight */
    bool streamed;        /* sums is memory of a GPU: calls on it are ordered by this stream */
    void *stream;
};

extern const struct device_kind device_cpu;

/* -1: name is neither cpu, cuda, nor cuda:N. *number_p: N, or -1. */
int device_parse(const char *name, bool *cuda_p, int *number_p);

/* Opens the device of that name; setup->number is set from it. */
int device_open(const char *name, struct device_setup *setup, struct device **device_p);
static inline void device_close(struct device *device)
{
    if (device)
        device->kind->close(device);
}

/* ---- between train_mnist and its module for GPUs, train_mnist_cuda.so ---- */

#ifdef __cplusplus
extern "C" {
#endif

/* What the module calls: it links neither the program nor the library. */
struct device_services {
    int (*failure)(const char *format, ...);
    dist_status (*alloc)(dist_group *group, size_t bytes, void **memory_p);
    dist_status (*release)(dist_group *group, void *memory);
    void (*grid_start)(const struct model *model, struct grid *grid);
};

/*
 * The module's one symbol. version: DIST_VERSION_STRING of the program; NULL if the module is of
 * another one.
 */
typedef const struct device_kind *(*device_cuda_fn)(const char *version,
                                                    const struct device_services *services);
#define DEVICE_CUDA_SYMBOL "train_mnist_cuda"
DIST_API const struct device_kind *train_mnist_cuda(const char *version,
                                                    const struct device_services *services);

#ifdef __cplusplus
}
#endif

#endif
