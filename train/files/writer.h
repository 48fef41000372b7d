/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that are written while training goes on. */
#ifndef TRAIN_WRITER_H
#define TRAIN_WRITER_H

#include "image.h"

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
 * failure. keep: see folder_prune; 0 where path is not in such a folder.
 */
int writer_start(struct writer *writer, const char *path, struct image *image, int keep);

/* Waits for what it writes. -1: it could not; the text says why, once. */
int writer_wait(struct writer *writer);

#endif
