/* SPDX-License-Identifier: BSD-3-Clause */
/* Replaces whole files atomically. */
#ifndef TRAIN_FILE_H
#define TRAIN_FILE_H

#include <stddef.h>

/*
 * Replaces the contents of path with head followed by body: writes a draft in the same directory
 * (tools/common/output.h), syncs it, renames it to path, and syncs the directory. On failure path
 * is unchanged and the draft is removed.
 */
int file_replace(const char *path, const void *head, size_t head_size, const void *body,
                 size_t body_size);

/* Checks that file_replace could create its draft, before there is data to lose. Leaves no file. */
int file_can_replace(const char *path);

#endif
