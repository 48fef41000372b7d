/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info memory: what the ranks of a machine can do with each other's memory here. */
#ifndef TOOLS_MEMORY_H
#define TOOLS_MEMORY_H

#include <stdbool.h>

/* argv[0] is "memory". Returns the exit code. */
int memory_main(int argc, char **argv);

/*
 * The kernel's setting of huge pages for shared memory: its file, and the chosen word, such as
 * "advise". False: the kernel has none.
 */
#define MEMORY_PATH 128
#define MEMORY_WORD 32
bool memory_huge_setting(char path[MEMORY_PATH], char word[MEMORY_WORD]);

/* memory.c */

/*
 * What one process finds when it wants to use the memory of another that the same program started:
 * 0, or an errno.
 */
struct memory_finding {
    int share;  /* can memory be made that can be shared? */
    int map;    /* can it be mapped through /proc/PID/fd? */
    int direct; /* can ordinary memory be read by process_vm_readv? */
};

/* Tries it with two processes. Blocks for ten seconds at most. -1: that could not be tried. */
int memory_probe(struct memory_finding *finding_p);

#endif
