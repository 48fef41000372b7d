/* SPDX-License-Identifier: BSD-3-Clause */
/* A model's parameters, or a whole training, in a safetensors file; folders of them. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model.h"
#include "safetensors.h"

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
