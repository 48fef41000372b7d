/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * start_grows RANKS: starts RANKS ranks on this machine, which join, call a barrier and leave.
 * Prints the most descriptors and file mappings that a rank other than 0, which serves the store,
 * has after it has joined: "descriptors 19 mappings 39".
 */
#include "descriptors.h"

#include <dist/dist.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Counts mappings of files. Mappings of malloc and of a sanitizer have no file. */
static int mappings(void)
{
    FILE *file = fopen("/proc/self/maps", "re");
    unsigned long inode;
    char line[512];
    int count = 0;

    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "%*s %*s %*s %*s %lu", &inode) == 1 && inode != 0)
            count++;
    if (file)
        fclose(file);
    return count;
}

static int fail(void)
{
    fprintf(stderr, "start_grows: %s\n", dist_last_error());
    return 1;
}

static int job(int rank, void *arg)
{
    int32_t mine[2] = {0, 0}, most[2];
    dist_group *group;

    (void)arg;
    if (dist_init_process_group(NULL, &group) != DIST_OK)
        return fail();
    if (rank != 0) {
        mine[0] = descriptors();
        mine[1] = mappings();
    }
    if (dist_barrier(group) != DIST_OK ||
        dist_all_reduce(group, mine, most, 2, DIST_INT32, DIST_MAX) != DIST_OK)
        return fail();
    if (rank == 0)
        printf("descriptors %d mappings %d\n", most[0], most[1]);
    fflush(stdout);
    return dist_destroy_process_group(group) == DIST_OK ? 0 : fail();
}

int main(int argc, char **argv)
{
    int code = 1;

    if (argc != 2) {
        fprintf(stderr, "usage: start_grows RANKS\n");
        return 2;
    }
    return dist_spawn(atoi(argv[1]), job, NULL, &code) == DIST_OK ? code : fail();
}
