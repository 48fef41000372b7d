/* SPDX-License-Identifier: BSD-3-Clause */
/* Whole files: replace one without a moment in which it is half written. */
#ifndef TRAIN_FILE_H
#define TRAIN_FILE_H

#include <stddef.h>

/*
 * Makes path consist of head and body: writes a draft beside it (tools/common/output.h), syncs,
 * renames, syncs the folder. On failure path is what it was, and the draft is gone.
 */
int file_replace(const char *path, const void *head, size_t head_size, const void *body,
                 size_t body_size);

/* Whether file_replace could begin: known before there is anything to lose. Leaves no file. */
int file_can_replace(const char *path);

#endif
