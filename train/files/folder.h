/* SPDX-License-Identifier: BSD-3-Clause */
/* A folder of checkpoints, which are named by their step. */
#ifndef TRAIN_FOLDER_H
#define TRAIN_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FOLDER_PATH = 4096 };

/* Whether path is meant as a folder: it is one, or ends with a slash. */
bool folder_is(const char *path);

/* Makes the folder if it is not there. */
int folder_make(const char *path);

/* The path of a step's file: folder/step-000000001200.safetensors. -1: it is too long. */
int folder_name(const char *folder, int64_t step, char path[FOLDER_PATH]);

/* The newest step there below `below`; -1: there is none. -2: the folder cannot be read. */
int64_t folder_newest(const char *folder, int64_t below);

/*
 * Removes all but the `keep` newest of those up to the step of path, a file in such a folder, and
 * what writers that were killed have left.
 */
void folder_prune(const char *path, int keep);

#endif
