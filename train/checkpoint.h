/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Saves and loads a model's parameters, or the whole state of a training, as safetensors files;
 * manages directories of checkpoints.
 */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "model.h"

/* ---- safetensors files ---- */

/*
 * The header contains the names, shapes and offsets of the tensors as JSON.
 *
 *   byte 0..7   length of the header, 64 bits, little-endian
 *   then        the header, padded with spaces so that the data is aligned to 8 bytes
 *   then        the data: float32, little-endian, one tensor after the other
 */
enum {
    TENSORS_MOST = 256,
    TENSORS_NAME = 48,
    TENSORS_DIMENSIONS = 4,
    TENSORS_NOTES = 16,
    TENSORS_HEADER_MOST = 1 << 17, /* bytes of JSON; this program writes a few thousand */
    TENSORS_PREFIX = 8,
    TENSORS_SUM = 8 /* digits of a checksum */
};

struct tensor {
    char name[TENSORS_NAME];
    int dimensions;
    uint64_t shape[TENSORS_DIMENSIONS];
    uint64_t begin, end; /* byte range in the data */
    int width; /* bytes per element in the file: 4, or 8 for PyTorch's NAME.num_batches_tracked */
    char sum[TENSORS_SUM +
             1]; /* checksum of the tensor's data as hexadecimal digits; "" if the file has none */
};

/* A key and its value in the metadata, other than a checksum. */
struct tensors_note {
    char key[24], text[48];
};

struct tensors {
    int count;
    struct tensor tensors[TENSORS_MOST];
    int note_count;
    struct tensors_note notes[TENSORS_NOTES];
    char sum[TENSORS_SUM + 1]; /* checksum of the header as read, or "": see tensors_sum */
};

/*
 * Writes the CRC-32 (the polynomial of zlib) of size bytes as hexadecimal digits. It detects any
 * burst of up to 32 wrong bits. In the metadata, "crc32.NAME" is the checksum of a tensor, and
 * "crc32" that of the header, computed with eight zeros in place of its digits.
 */
void tensors_sum(const void *bytes, size_t size, char sum[TENSORS_SUM + 1]);

/* ---- a file in memory: tensors, notes and data ---- */

/* Errors of image_read. */
enum image_status {
    IMAGE_OTHER =
        -1, /* the file is missing or unreadable, or it is intact but does not match the model */
    IMAGE_DAMAGED = -2 /* the file is corrupt or not a safetensors file */
};

struct image {
    struct tensors tensors; /* in ascending order of their offsets into data */
    float *data;            /* owned by the image; NULL until allocated */
};

/* Appends a tensor; dimensions and shape as in struct tensor. Returns the new tensor. */
struct tensor *image_add(struct image *image, const char *name, int dimensions,
                         const uint64_t *shape);

/*
 * Allocates the data of all tensors added so far. -1: out of memory; the message begins with path.
 */
int image_allocate(const char *path, struct image *image);

/* Returns the data of the named tensor, or NULL. */
float *image_data(const struct image *image, const char *name);

static inline void image_free(struct image *image) /* accepts a zeroed image */
{
    free(image->data);
    image->data = NULL;
}

/* Computes the checksums and replaces the file at path (see file_replace). */
int image_write(const char *path, struct image *image);

/*
 * Reads and checks the file at path. Returns 0 or an enum image_status; the message names the file,
 * and the byte or the tensor that is damaged. Files without checksums, such as PyTorch writes, are
 * accepted. On success the caller owns *image and releases it with image_free; on failure there is
 * nothing to release.
 */
int image_read(const char *path, struct image *image);

/* ---- a model, or a whole training state, in such a file ---- */

/*
 * The names (conv1.weight, conv1.bias, ...) and the order of the elements are those of the PyTorch
 * MNIST example's state_dict: convolutions out x in x height x width, dense layers out x in with
 * the inputs in the order channel, row, column. The file of a whole training state has one more
 * tensor, optimizer.NAME, of one dimension, whose layout is private to this program.
 */

/* The state of a training without its parameters. Random numbers are functions of seed and step. */
struct training_state {
    int64_t epoch;         /* epochs done */
    int64_t samples;       /* samples of the current epoch done so far, by all ranks together */
    int64_t step;          /* steps done in all epochs */
    int64_t seed;          /* seed of all random numbers */
    int64_t data;          /* a 32-bit hash that identifies the training set */
    int64_t tests, idle;   /* tests so far; tests since the best one */
    double best;           /* the smallest test loss so far */
    const char *optimizer; /* name of the optimizer */
    float *state;          /* the device's state, `count` floats; owned by the caller */
    size_t count;
};

/*
 * Copies the model's parameters and the training state into *image, which the caller releases with
 * image_free. path is used in error messages only.
 */
int checkpoint_image(const char *path, const struct model *model,
                     const struct training_state *training, struct image *image);

/*
 * Replaces the model's weights and *training. Everything is checked before anything is changed: the
 * file must contain all the model's tensors, with its shapes, and besides them only optimizer
 * states and PyTorch's counters num_batches_tracked.
 *
 * If training->state is NULL, only the weights are loaded. Otherwise the caller sets `optimizer`,
 * `state`, `count`, `seed` and `data`, which must match the file if it contains a whole training
 * state; the training then continues bit for bit as if it had not been interrupted. Numbers that
 * the file does not contain become -1.
 *
 * Returns 1 if a whole training state was loaded, 0 if only the parameters were, or an enum
 * image_status.
 */
int checkpoint_load(const char *path, struct model *model, struct training_state *training);

/*
 * Writes the parameters with file_replace: path is either the old file or the complete new one.
 * epoch: epochs done.
 */
int checkpoint_save(const char *path, const struct model *model, int64_t epoch);

/* ---- directories of checkpoints, whose files are named by step ---- */

enum { FOLDER_PATH = 4096 };

/* True if path is a directory or ends with a slash. */
bool folder_is(const char *path);

/* Creates the directory if it does not exist. */
int folder_make(const char *path);

/* Writes the path of a step's file: folder/step-000000001200.safetensors. -1: it is too long. */
int folder_name(const char *folder, int64_t step, char path[FOLDER_PATH]);

/*
 * Returns the newest step in the directory that is below `below`; -1: none; -2: cannot read the
 * directory.
 */
int64_t folder_newest(const char *folder, int64_t below);

/* ---- files written while training continues ---- */

struct writer;

/*
 * Creates an idle writer. While it writes a file, SIGTERM terminates the process only after the
 * file is complete; for this the writer installs a SIGTERM handler if there is none. On success the
 * caller owns *writer_p and releases it with writer_destroy. Not thread-safe.
 */
int writer_create(struct writer **writer_p);

/*
 * Waits until the current file is written, then frees the writer; NULL is accepted. Returns -1 if
 * that file could not be written and the error has not been reported yet.
 */
int writer_destroy(struct writer *writer);

/*
 * Starts to write the image to path, as image_write does, in a thread of the writer. Waits first
 * until the previous file is written; if that failed, returns -1 with its error and starts nothing.
 * Takes ownership of *image, also on failure. keep: number of newest files to keep in path's
 * directory; 0: remove none.
 */
int writer_start(struct writer *writer, const char *path, struct image *image, int keep);

/* Waits until the current file is written. -1: writing failed; each failure is reported once. */
int writer_wait(struct writer *writer);

#endif
