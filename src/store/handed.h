/* SPDX-License-Identifier: BSD-3-Clause */
/* Files in memory that a launcher passes to its ranks, which may be in other namespaces. */
#ifndef DISTI_STORE_HANDED_H
#define DISTI_STORE_HANDED_H

#include <stddef.h>

/*
 * The ranks inherit the descriptors of these files. DIST_AGENT_FILES has their numbers and inodes:
 *
 *     DIST_AGENT_FILES=6:4711,7:4712     FD:INODE of the secret, then of the last calls
 *
 * A rank first tries the inherited descriptor, which works in every namespace. A program between
 * launcher and rank may have closed it (Python's subprocess does); then the rank opens
 * /proc/LAUNCHER/fd/FD, which works in the launcher's PID and user namespace. The number may belong
 * to another file meanwhile, and in another PID namespace the pid to another process: the inode
 * tells.
 */
enum disti_handed { DISTI_HANDED_SECRET, DISTI_HANDED_LAST_CALLS, DISTI_HANDED_FILES };

/* Room for "FD:INODE". */
#define DISTI_HANDED_TEXT 40

/* ---- the launcher's side ---- */

/* Returns a sealed memfd that contains the word; -1: errno. The caller closes it. */
int disti_handed_secret(const char *word);

/* Writes "FD:INODE". */
void disti_handed_name(int fd, char text[DISTI_HANDED_TEXT]);

/* ---- the rank's side ---- */

/*
 * Opens a file of the launcher with `flags`, by the inherited descriptor, or by `path`. Without
 * DIST_AGENT_FILES any file at `path` will do. Returns a descriptor, which the caller closes, or
 * -1: errno; ESTALE: `path` is another file. *inherited_p is the number of the descriptor that was
 * to be inherited; -1: none was.
 */
int disti_handed_open(enum disti_handed which, const char *path, int flags, int *inherited_p);

#endif
