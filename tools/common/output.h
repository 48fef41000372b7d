/* SPDX-License-Identifier: BSD-3-Clause */
/* Standard output and the files of a program. Every failed write is reported. */
#ifndef TOOLS_OUTPUT_H
#define TOOLS_OUTPUT_H

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
 * Writes the contents to the file PATH, and frees them. PATH is replaced in one step (draft.h): it
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

#endif
