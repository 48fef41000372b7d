/* SPDX-License-Identifier: BSD-3-Clause */
/* Writing to standard output and to files, so that no failed write goes unnoticed. */
#ifndef TOOLS_OUTPUT_H
#define TOOLS_OUTPUT_H

#include <dirent.h>
#include <stddef.h>
#include <stdio.h>

/* The contents of a file, collected in memory until complete. */
struct output {
    FILE *to; /* NULL: out of memory */
    char *bytes;
    size_t size;
};

/* Opens output->to for writing to memory. */
void output_begin(struct output *output);

/*
 * Writes the contents to the file PATH, and frees them. Returns 0, or -1 with errno set. A NULL
 * path, or contents for which memory ran out, fail with ENOMEM.
 *
 * Replaces PATH atomically by a draft (see below), so PATH is never empty or incomplete, and a
 * failure leaves it unchanged; only if close fails, PATH has been replaced. Exceptions: a file in a
 * directory that is not writable, a mount point, a device or pipe, and the file of standard output
 * or error are overwritten in place. After a failure their contents may be incomplete.
 */
int output_end(struct output *output, const char *path);

/* Prints to standard output, and flushes it. */
void output_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * Flushes standard output, and remembers errno of the first failure for output_failure. Programs
 * use it in place of fflush.
 */
void output_flush(void);

/*
 * Called at the end of a program, or of a rank that prints: flushes standard output and returns
 * `code`. If output was lost, prints the cause to standard error (except for a closed pipe) and
 * returns 1 in place of 0.
 */
int output_exit(const char *program, int code);

/* Flushes standard output. Returns why it is incomplete, or NULL if it is complete. */
const char *output_failure(void);

/* Drafts: temporary files in the directory of the target, which are renamed to it when complete. */

/*
 * Creates the file PATH.tmp-XXXXXXXX for writing. No other process writes or removes it: the name
 * is unique, and the file is locked while it is open. Removes the drafts of PATH that no process
 * has open. If PATH is a link to a file, the draft is created beside that file. If PATH is a device
 * or pipe, the file of standard output or error, or a file in a directory that is not writable,
 * opens PATH itself and sets *name_p to NULL. Returns a descriptor, or -1 with errno; the caller
 * frees *name_p in any case.
 */
int draft_open(const char *path, char **name_p);

/* Writes all bytes. Returns 0, or -1 with errno. */
int draft_write(int fd, const void *bytes, size_t size);

/*
 * Syncs the draft, renames it to its target, and syncs the directory. If the target is a mount
 * point, its content is overwritten instead. If `name` is NULL, draft_open opened the target
 * itself: truncates it after the last byte written, unless it is a device or pipe, or the file of
 * standard output or error. The descriptor stays open. Returns 0, or -1 with errno; the draft then
 * still exists.
 */
int draft_finish(const char *name, int fd);

/* Removes the draft (unless name is NULL) and closes the descriptor. Keeps errno. */
void draft_discard(const char *name, int fd);

/* Checks whether a draft of PATH can be created. Leaves no file. Returns 0, or -1 with errno. */
int draft_is_possible(const char *path);

/*
 * Returns the length of the target's name in `name`, the name of a draft; 0 if `name` is not one.
 */
size_t draft_base(const char *name);

/* Removes a draft in the directory, unless a process has it open. */
void draft_remove_dead(DIR *folder, const char *name);

/* A progress line for long operations. */

/*
 * Shows the text as the progress line on stderr, cut to 78 columns, in place of the previous text.
 * Does nothing if stderr is no terminal. May be called from any thread.
 */
void progress_show(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Erases the progress line, if shown. Call it before printing anything else, and at the end. */
void progress_clear(void);

#endif
