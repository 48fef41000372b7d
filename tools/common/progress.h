/* SPDX-License-Identifier: BSD-3-Clause */
/* What a long piece of work is at, for a person at a terminal. */
#ifndef TOOLS_COMMON_PROGRESS_H
#define TOOLS_COMMON_PROGRESS_H

/*
 * Shows the text in one line of stderr, in place of what was shown last, cut to 78 columns; nothing
 * where stderr is no terminal. From any thread.
 */
void progress_show(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Takes the line away, if there is one: before anything else is printed, and at the end. */
void progress_clear(void);

#endif
