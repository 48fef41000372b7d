/* SPDX-License-Identifier: BSD-3-Clause */
/* Drafts: new files beside those whose names they take in the end. */
#ifndef TOOLS_DRAFT_H
#define TOOLS_DRAFT_H

#include <dirent.h>
#include <stddef.h>

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

#endif
