/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info memory: tests how ranks of this machine can access each other's memory. */
#ifndef TOOLS_MEMORY_H
#define TOOLS_MEMORY_H

#include <stdbool.h>

/* Runs the command; argv[0] is "memory". Returns the exit code. */
int memory_main(int argc, char **argv);

/*
 * Reads the kernel's setting of huge pages for shared memory: the path of its file and the selected
 * word, such as "advise". Returns false if the kernel has no such setting.
 */
#define MEMORY_PATH 128
#define MEMORY_WORD 32
bool memory_huge_setting(char path[MEMORY_PATH], char word[MEMORY_WORD]);

/* Results of accessing the memory of a sibling process. Each is 0 on success, or an errno. */
struct memory_finding {
    int share;  /* creating memory with memfd_create */
    int map;    /* mapping that memory through /proc/PID/fd */
    int direct; /* reading ordinary memory with process_vm_readv */
};

/* Runs the test with two child processes. Blocks for at most 20 s. Returns 0, or -1 if the test
 * could not be run. */
int memory_probe(struct memory_finding *finding_p);

#endif
