/* SPDX-License-Identifier: BSD-3-Clause */
/* The interface of a device, CPU or GPU, to the trainer. */
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

/* ---- optimizers over contiguous parameters: SGD with momentum, Adadelta ---- */

/* Adadelta's constants. */
#define OPTIMIZER_RHO 0.9F
#define OPTIMIZER_EPSILON 1e-6F

#define OPTIMIZER_STATES 2 /* state values per parameter, at most */

struct optimizer;

/*
 * Creates an optimizer for `count` parameters. name is "sgd" (v = momentum v + g; w -= lr v; the
 * first v is g) or "adadelta" (Zeiler 2012, with rho 0.9 and epsilon 1e-6; ignores momentum). Both
 * compute what PyTorch's do; weight decay adds decay * w to the gradient. On success the caller
 * owns *optimizer_p. -1: unknown name or out of memory.
 */
int optimizer_create(const char *name, size_t count, float momentum, float weight_decay,
                     struct optimizer **optimizer_p);
void optimizer_destroy(struct optimizer *optimizer); /* NULL is accepted */

/*
 * Performs one step. It contains no sums over elements and no fused operations, so the same inputs
 * give the same bits on every processor.
 */
void optimizer_step(struct optimizer *optimizer, float lr, float *weights, float *gradients);

/* ---- sums of gradients that do not depend on the order of the additions ---- */

/*
 * Training is chaotic: another order of additions changes the last bit of a gradient, and this
 * difference grows to the size of the loss within about ten steps. Therefore a step is divided into
 * micro-batches that are the same for any number of ranks, and the gradients of each are rounded to
 * multiples of a grid step that is large enough to make all their sums exact. float32 has 24 bits:
 *
 *     16 bits of gradient | 8 bits for sums of up to 8 and for growing gradients
 *
 * Sums of such multiples have the same bits in any order and through any algorithm. Each tensor has
 * its own grid step, a power of two derived from its largest gradients in the previous training
 * step. A gradient that is too large for its grid step is not damaged; its sums are merely rounded
 * as usual.
 */
struct grid {
    int count;                      /* number of tensors: one weight and one bias per layer */
    float steps[MODEL_MAX_TENSORS]; /* grid steps for the mean over all ranks; 0: no rounding */
};

/*
 * Floats that follow the gradients in the sums: the loss, then the largest gradient of each tensor.
 */
enum { GRID_TAIL = 1 + MODEL_MAX_TENSORS };
static_assert((int)GRID_TAIL <= (int)MODEL_TAIL, "the gradients have room for the tail");

/*
 * log2 of grid_power(largest gradient) / grid step. The largest gradient is stored as a power of
 * two, which grid_power doubles, so it has 2^16 grid steps.
 */
enum { GRID_BITS = 17 };

/*
 * Returns the next greater power of two, because sums of such values are exact as well; 0 if `most`
 * is 0, infinite or NaN.
 */
ANYWHERE float grid_power(float most)
{
    int exponent = 0;

    if (!(most > 0.0F) || isinf(most))
        return 0.0F;
    frexpf(most, &exponent);
    return ldexpf(1.0F, exponent);
}

/*
 * Returns 1.5 * 2^23 steps. Adding this rounds a float to a multiple of step; subtracting it again
 * leaves the rounded number.
 */
ANYWHERE float grid_shift(float step)
{
    return 0x1.8p23F * step;
}

/* Sets the grid steps for the first batch, whose gradients are assumed to be below 1. */
void grid_start(const struct model *model, struct grid *grid);

/*
 * Writes the model's gradients, rounded, to sums (model->parameters + GRID_TAIL floats), or adds
 * them if `add`. The tail receives the loss and the largest gradient of each tensor as a power of
 * two. scale: number of ranks, whose mean is computed later. sums may be model->gradients unless
 * `add`.
 */
void grid_add(const struct grid *grid, const struct model *model, int scale, float loss, bool add,
              float *sums);

/* Sets the grid steps from the tail of the sums, after these have been averaged over the ranks. */
void grid_advance(struct grid *grid, const struct model *model, const float *sums);

/* ---- devices ---- */

/*
 *     trainer.c            batches, epochs, output
 *         |  struct device_kind
 *         +-- device.c, the CPU              layers, grid and optimizer
 *         +-- device.c, GPUs -- dlopen --> cuda.cu: the same arithmetic as kernels
 *
 * Functions return 0, or -1 with a message (failure_text). None of them communicates.
 */
struct device;

/* Parameters of `open`. */
struct device_setup {
    struct model *model; /* shapes, and the host's copy of the weights; must outlive the device */
    dist_group *group;   /* the group that averages the sums; NULL: no communication */
    int capacity;        /* maximum samples per batch */
    bool grid;           /* round the sums so that their order does not matter: see struct grid */
    bool sharded;        /* dist_zero owns the optimizer's state and updates slices */
    int world;           /* number of ranks in the mean */
    const char *optimizer;
    float momentum, weight_decay;
    int number; /* number of the GPU; -1: chosen by the local rank */
    int local_rank;
};

struct device_kind {
    /*
     * On success the caller owns *device_p and releases it with close. The device's weights are not
     * set.
     */
    int (*open)(const struct device_setup *setup, struct device **device_p);
    void (*close)(struct device *device);
    /*
     * put copies the weights from the host to the device, get from the device to the host. On the
     * CPU both are the same memory.
     */
    int (*put)(struct device *device);
    int (*get)(struct device *device);
    /*
     * Copies the state that later updates depend on, except the weights, to the host (save) or from
     * the host: device->state_count floats.
     */
    int (*state)(struct device *device, bool save, float *state);
    /*
     * Computes the gradients of the batch and stores them in sums, or adds them if pass->add.
     *
     * With grid, the batch consists of micro_batches consecutive parts of equal size, GRID_TAIL
     * floats follow the gradients, and listener->ready must be NULL. Without grid, listener->ready
     * is called for each tensor as soon as its gradient is complete (CPU), or as soon as the work
     * that completes it is queued on the stream (GPU).
     *
     * listener may be NULL. The batch may be reused when the function returns.
     */
    int (*gradients)(struct device *device, const struct pass *pass, const struct batch *batch,
                     int micro_batches, const struct model_listener *listener);
    /*
     * Updates the weights from sums, the mean over the ranks. If sharded, dist_zero has already
     * updated them.
     */
    int (*update)(struct device *device, float lr);
    /* Updates one slice of the weights, if sharded. NULL: not supported. */
    void (*slice)(struct device *device, float lr, const struct dist_zero_slice *slice);
    /*
     * Waits for the last `count` updates (at most DEVICE_AHEAD) and returns their losses: with grid
     * the mean over the ranks, otherwise this rank's own.
     */
    int (*losses)(struct device *device, int count, double *losses);
    /* Computes the loss of a batch without training. */
    int (*test)(struct device *device, const struct pass *pass, const struct batch *batch,
                struct loss *loss);
};

enum {
    DEVICE_AHEAD = 256
}; /* updates whose losses are kept; limits how far the host runs ahead of the device */

struct device {
    const struct device_kind *kind;
    float *sums; /* values to average over the ranks: the gradients, then GRID_TAIL floats */
    size_t state_count;
    int optimizer_states; /* state values of the optimizer per weight */
    bool streamed;        /* sums is GPU memory, and `stream` orders the operations on it */
    void *stream;
};

extern const struct device_kind device_cpu;

/* Parses cpu, cuda or cuda:N. *number_p: N, or -1. Returns -1 for any other name. */
int device_parse(const char *name, bool *cuda_p, int *number_p);

/* Opens the device of that name and sets setup->number. */
int device_open(const char *name, struct device_setup *setup, struct device **device_p);
static inline void device_close(struct device *device)
{
    if (device)
        device->kind->close(device);
}

/* ---- between train_mnist and its GPU module, train_mnist_cuda.so ---- */

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Functions of the program that the module calls, because it links neither the program nor the
 * library.
 */
struct device_services {
    int (*failure)(const char *format, ...);
    dist_status (*alloc)(dist_group *group, size_t bytes, void **memory_p);
    dist_status (*release)(dist_group *group, void *memory);
    void (*grid_start)(const struct model *model, struct grid *grid);
};

/*
 * The module's only symbol. version: DIST_VERSION_STRING of the program. Returns NULL if the module
 * has another version.
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
