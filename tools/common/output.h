/* SPDX-License-Identifier: BSD-3-Clause */
/* Standard output and the files of a program. Every failed write is reported. */
#ifndef TOOLS_OUTPUT_H
#define TOOLS_OUTPUT_H

#include <dirent.h>
#include <stddef.h>
#include <stdio.h>

/* The contents of a file, in memory until they are complete. */
struct output {
    FILE *to; /* NULL: no memory */
    char *bytes;
    size_t size;
};

void output_begin(struct output *output);

/*
 * Writes the contents to the file PATH, and frees them. PATH is replaced in one step: it
 * is never empty or incomplete. Returns 0, or -1 with errno: then PATH is as it was. PATH NULL, for
 * contents that lacked memory, is such a failure.
 */
int output_end(struct output *output, const char *path);

/* Prints to standard output, and flushes it. */
void output_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Flushes standard output. Programs call it instead of fflush, so that the cause is kept. */
void output_flush(void);

/*
 * The end of a program, or of a rank that prints: flushes standard output. Returns code; if output
 * was lost, says why on standard error, and returns 1 in place of 0. A closed pipe is not reported.
 */
int output_exit(const char *program, int code);

/* Why standard output is incomplete; NULL: it is complete. */
const char *output_failure(void);

/* Drafts: new files beside those whose names they take in the end. */

/*
 * A new file PATH.tmp-XXXXXXXX for writing, which no other process writes or removes: it has its
 * own name, and is locked while it is open. Removes the drafts of PATH that no process has open.
 * If PATH is a link to a file, the draft is created beside that file. If PATH is a device, a pipe,
 * the file that standard output or error goes to, or a file in a folder that cannot be written to,
 * it is opened itself, and *name_p is NULL. Returns a descriptor, or -1 with errno; the caller
 * frees *name_p in any case.
 */
int draft_open(const char *path, char **name_p);

/* Writes all bytes. Returns 0, or -1 with errno. */
int draft_write(int fd, const void *bytes, size_t size);

/*
 * Syncs the draft, renames it to the file that it was opened for, and syncs the directory. If that
 * file is a mount point, its content is replaced instead. The descriptor stays open. Returns 0, or
 * -1 with errno: then the draft still exists.
 */
int draft_finish(const char *name, int fd);

/* Removes the draft, and closes its descriptor. */
void draft_discard(const char *name, int fd);

/* Whether draft_open and draft_finish can succeed. Leaves no file. Returns 0, or -1 with errno. */
int draft_is_possible(const char *path);

/* The length of the name of which this one is a draft's; 0: it is no draft. */
size_t draft_base(const char *name);

/* Removes a draft in that folder, unless a process has it open. */
void draft_remove_dead(DIR *folder, const char *name);

/* What a long piece of work is at, for a person at a terminal. */

/*
 * Shows the text in one line of stderr, in place of what was shown last, cut to 78 columns; nothing
 * where stderr is no terminal. From any thread.
 */
void progress_show(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Takes the line away, if there is one: before anything else is printed, and at the end. */
void progress_clear(void);

#endif
