/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * startup_dist [--spawn RANKS], startup_openmpi, startup_mpich: measures the cost of starting and
 * of memory.
 *
 * Every rank joins, calls an all-reduce of 8 bytes and an all-to-all of 8 bytes per pair, waits in
 * a barrier for rank 0, which sleeps for 1 s, and leaves. After each phase it prints a line
 *
 *     PHASE RANK BEGAN_US ENDED_US CPU_US PRIVATE_KIB PSS_KIB DESCRIPTORS
 *
 * with times of the monotonic clock, the CPU time of the process in this phase, and its memory and
 * descriptors at the end. footprint.sh makes tables of these lines.
 */
#include "startup.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static int rank, ranks;

static long long now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

static long long cpu_us(void)
{
    struct rusage use;

    getrusage(RUSAGE_SELF, &use);
    return (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000000LL + use.ru_utime.tv_usec +
           use.ru_stime.tv_usec;
}

static int descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = -3; /* ".", "..", and the directory's own descriptor */

    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

static void memory(long *private_p, long *pss_p)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    char line[256];
    long kib;

    *private_p = *pss_p = 0;
    while (file && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "Pss: %ld", &kib) == 1)
            *pss_p = kib;
        if (sscanf(line, "Private_Clean: %ld", &kib) == 1 ||
            sscanf(line, "Private_Dirty: %ld", &kib) == 1)
            *private_p += kib;
    }
    if (file)
        fclose(file);
}

/* Prints a line with a single write, because all ranks share the output. */
static void report(const char *phase, long long began, long long cpu)
{
    long long ended = now_us(), used = cpu_us() - cpu;
    long private_kib, pss_kib;
    char line[256];
    int length;

    memory(&private_kib, &pss_kib);
    length = snprintf(line, sizeof(line), "%s %d %lld %lld %lld %ld %ld %d\n", phase, rank, began,
                      ended, used, private_kib, pss_kib, descriptors());
    if (write(STDOUT_FILENO, line, (size_t)length) != length)
        exit(1);
}

static int all_to_all(void)
{
    return startup.all_to_all(ranks);
}

static int idle(void)
{
    if (rank == 0)
        sleep(1);
    return startup.barrier();
}

static int join(void)
{
    return startup.join(&rank, &ranks);
}

static int job(void)
{
    const struct {
        const char *name;
        int (*run)(void);
    } phases[] = {{"join", join},
                  {"all_reduce", startup.all_reduce},
                  {"all_to_all", all_to_all},
                  {"barrier", startup.barrier},
                  {"idle", idle},
                  {"leave", startup.leave}};

    report("begin", now_us(), cpu_us());
    for (size_t i = 0; i < sizeof(phases) / sizeof(*phases); i++) {
        long long began = now_us(), cpu = cpu_us();

        if (phases[i].run() != 0)
            return 1;
        report(phases[i].name, began, cpu);
    }
    return 0;
}

int main(int argc, char **argv)
{
    return startup.start(argc, argv, job);
}
