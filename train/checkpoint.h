/* SPDX-License-Identifier: BSD-3-Clause */
/* A model's parameters, or a whole training, in a safetensors file; folders of them. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "model.h"

/* ---- a safetensors file: its header (names, shapes and places of tensors, as JSON) and its data
 * ---- */

/*
 *   byte 0..7   length of the header, 64 bits, little-endian
 *   then        the header, padded with spaces so that the data is aligned to 8
 *   then        the data: float32, little-endian, one tensor after the other
 */
enum {
    TENSORS_MOST = 256,
    TENSORS_NAME = 48,
    TENSORS_DIMENSIONS = 4,
    TENSORS_NOTES = 16,
    TENSORS_HEADER_MOST = 1 << 17, /* bytes of JSON; ours have some thousand */
    TENSORS_PREFIX = 8,
    TENSORS_SUM = 8 /* digits of a checksum */
};

struct tensor {
    char name[TENSORS_NAME];
    int dimensions;
    uint64_t shape[TENSORS_DIMENSIONS];
    uint64_t begin, end; /* bytes in the data */
    int width; /* as read: bytes of an element. 4; 8: a NAME.num_batches_tracked of PyTorch's */
    char sum[TENSORS_SUM + 1]; /* checksum of its data: hexadecimal digits; "": not said */
};

/* A text of the metadata besides the checksums. */
struct tensors_note {
    char key[24], text[48];
};

struct tensors {
    int count;
    struct tensor tensors[TENSORS_MOST];
    int note_count;
    struct tensors_note notes[TENSORS_NOTES];
    char sum[TENSORS_SUM + 1]; /* checksum of the header, "" or as read: see tensors_sum */
};

/*
 * The checksum of size bytes, as digits: CRC-32 as zlib has it, which notices any burst of up to 32
 * bits. In the metadata "crc32.NAME" is a tensor's, and "crc32" that of the header, with eight
 * zeros in its place.
 */
void tensors_sum(const void *bytes, size_t size, char sum[TENSORS_SUM + 1]);

/* ---- a file in memory: tensors, notes and data ---- */

/* How a file can be wrong, besides not being readable at all. */
enum image_status {
    IMAGE_OTHER = -1,  /* it is not there, or whole and not what was expected */
    IMAGE_DAMAGED = -2 /* it is not what was written, or no such file at all */
};

struct image {
    struct tensors tensors; /* their places are in data, in order */
    float *data;            /* NULL: none yet; the image's own */
};

/* Adds a tensor behind the others; dimensions and shape as in struct tensor. */
struct tensor *image_add(struct image *image, const char *name, int dimensions,
                         const uint64_t *shape);

/* Makes room for the data of all tensors that were added. -1: out of memory; path for the text. */
int image_allocate(const char *path, struct image *image);

/* Where the data of the tensor of that name are, or NULL. */
float *image_data(const struct image *image, const char *name);

static inline void image_free(struct image *image) /* a zeroed one is accepted */
{
    free(image->data);
    image->data = NULL;
}

/* Sets the checksums, and makes path this file as file_replace does. */
int image_write(const char *path, struct image *image);

/*
 * Reads and checks path: an enum image_status, and the text names the file, and the byte or the
 * tensor where it is damaged. Files without checksums, as PyTorch writes them, are taken too. On
 * success *image is the caller's, for image_free; else it holds nothing.
 */
int image_read(const char *path, struct image *image);

/* ---- a model, or a whole training, in such a file ---- */

/*
 * The names (conv1.weight, conv1.bias, ...) and the order of the elements are those of
 * the PyTorch MNIST example's state_dict: convolutions out x in x height x width, dense
 * layers out x in with the inputs in the order channel, row, column. A whole training has one
 * tensor more, optimizer.NAME, of one dimension and this program's own layout.
 */

/* What a training is besides its parameters. Random numbers are functions of seed and step. */
struct checkpoint_rest {
    int64_t epoch;         /* epochs done */
    int64_t samples;       /* seen in the epoch that is under way, by all ranks together */
    int64_t step;          /* steps done in all epochs */
    int64_t seed;          /* of all random numbers */
    int64_t data;          /* 32 bits that tell training sets apart */
    int64_t tests, idle;   /* tests so far, and those since the best one */
    double best;           /* the smallest loss of a test */
    const char *optimizer; /* its name */
    float *state;          /* of the device, `count` floats; the caller's */
    size_t count;
};

/* Puts a copy of the whole training into *image, for image_free. path is for an error's text. */
int checkpoint_image(const char *path, const struct model *model,
                     const struct checkpoint_rest *rest, struct image *image);

/*
 * Replaces the model's weights, and *rest. Everything is checked before anything is changed: the
 * file must have the model's tensors, with its shapes, and nothing else but an optimizer's.
 *
 * rest->state NULL: nothing but the weights is of interest. Else `optimizer`, `state`, `count`,
 * `seed` and `data` are given and must fit a whole training's; bit by bit it goes on as if it had
 * not been interrupted. Numbers that the file does not say become -1.
 *
 * Returns 1 for a whole training that was asked for, 0 for the parameters alone, else an enum
 * image_status.
 */
int checkpoint_load(const char *path, struct model *model, struct checkpoint_rest *rest);

/*
 * Writes the parameters. path is the old file or the complete new one, never a part: see
 * file_replace. epoch: epochs done.
 */
int checkpoint_save(const char *path, const struct model *model, int64_t epoch);

/* ---- a folder of checkpoints, which are named by their step ---- */

enum { FOLDER_PATH = 4096 };

/* Whether path is meant as a folder: it is one, or ends with a slash. */
bool folder_is(const char *path);

/* Makes the folder if it is not there. */
int folder_make(const char *path);

/* The path of a step's file: folder/step-000000001200.safetensors. -1: it is too long. */
int folder_name(const char *folder, int64_t step, char path[FOLDER_PATH]);

/* The newest step there below `below`; -1: there is none. -2: the folder cannot be read. */
int64_t folder_newest(const char *folder, int64_t below);

/* ---- files that are written while training goes on ---- */

struct writer;

/*
 * Makes a writer, which begins with nothing to write. While it writes, SIGTERM ends the process
 * only when the file is there; the writer takes that signal over if nothing else has. On success
 * *writer_p is the caller's, for writer_destroy. One thread at a time uses it.
 */
int writer_create(struct writer **writer_p);

/*
 * Waits for what it writes, and frees it; NULL is accepted. 0, or -1 if the last file could not be
 * written and nobody has been told.
 */
int writer_destroy(struct writer *writer);

/*
 * Writes the image to path, in a thread of its own, as image_write does. Waits first for the one
 * before. If that failed: -1 with its text, and nothing is begun. Takes over *image, also on
 * failure. keep: newest files of path's folder that stay; 0 where path is not in such a folder.
 */
int writer_start(struct writer *writer, const char *path, struct image *image, int keep);

/* Waits for what it writes. -1: it could not; the text says why, once. */
int writer_wait(struct writer *writer);

#endif
