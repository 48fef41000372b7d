/* SPDX-License-Identifier: BSD-3-Clause */
/* Drafts: new files beside those whose names they take in the end. */
#ifndef TRAIN_DRAFT_H
#define TRAIN_DRAFT_H

#include <dirent.h>
#include <stddef.h>

/*
 * A new file PATH.tmp-XXXXXXXX for writing, which no other process writes or removes: it has its
 * own name, and is locked while it is open. Removes the drafts of PATH that no process has open.
 * Returns a descriptor, or -1 with errno; the caller frees *name_p in any case.
 */
int draft_open(const char *path, char **name_p);

/* The length of the name of which this one is a draft's; 0: it is no draft. */
size_t draft_base(const char *name);

/* Removes a draft in that folder, unless a process has it open. */
void draft_remove_dead(DIR *folder, const char *name);

#endif
