/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stopped [v]: rank 1 of two is stopped as it is about to write to rank 0's ordinary memory. Rank
 * 0's call fails, and rank 0 reuses the memory; then rank 1 continues. Exit 0 if nothing is written
 * after that, or if the ranks never write to each other's memory. v: with a v-form.
 */
#include <dist/dist.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define BLOCK ((size_t)4 << 20)
#define CALLS 64
#define TIMEOUT_MS 1000
#define JOIN_MS 30000
#define SLACK_S 15 /* far below JOIN_MS, for a machine under high load */
#define PATTERN 0xa5

static int rank;
static bool uneven;

/* Replaces the C library's function for this program and the library. */
__attribute__((visibility("default"))) ssize_t
process_vm_writev(pid_t pid, const struct iovec *here, unsigned long here_count,
                  const struct iovec *there, unsigned long there_count, unsigned long flags)
{
    static int writes;

    if (rank == 1 && ++writes == 3)
        raise(SIGSTOP);
    return syscall(SYS_process_vm_writev, pid, here, here_count, there, there_count, flags);
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Continues rank 1. Returns 1 if it writes to memory that rank 0 has reused, otherwise 0. */
static int stays(unsigned char *memory, size_t bytes, pid_t stopped)
{
    memset(memory, PATTERN, bytes);
    kill(stopped, SIGCONT);
    usleep(300 * 1000);
    for (size_t i = 0; i < bytes; i++) {
        if (memory[i] != PATTERN) {
            fprintf(stderr, "byte %zu was written to after the call had failed\n", i);
            return 1;
        }
    }
    return 0;
}

static dist_status gather(dist_group *group, const void *in, void *out)
{
    const size_t counts[] = {BLOCK, BLOCK};

    return uneven ? dist_gather_v(group, in, BLOCK, out, counts, NULL, DIST_UINT8, 0)
                  : dist_gather(group, in, out, BLOCK, DIST_UINT8, 0);
}

static int run(dist_group *group, unsigned char *in, unsigned char *out)
{
    dist_status status = DIST_OK;
    int32_t pid = getpid();
    double begin = 0;
    bool late;

    if (dist_broadcast(group, &pid, 1, DIST_INT32, 1) != DIST_OK)
        return 1;
    for (int i = 0; i < CALLS && status == DIST_OK; i++) {
        begin = seconds();
        status = gather(group, in, out);
    }
    if (status == DIST_OK || rank == 1)
        return 0;
    late = seconds() - begin > TIMEOUT_MS * 1e-3 + SLACK_S || !strstr(dist_last_error(), "rank 1");
    if (late)
        fprintf(stderr, "after %g s: %s\n", seconds() - begin, dist_last_error());
    return stays(out, 2 * BLOCK, pid) || late;
}

int main(int argc, char **argv)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    struct dist_group_options brief = DIST_GROUP_OPTIONS_INIT;
    unsigned char *in = malloc(BLOCK), *out = malloc(2 * BLOCK);
    dist_group *world, *group;
    int code;

    (void)argv;
    uneven = argc > 1;
    options.timeout_ms = JOIN_MS;
    brief.timeout_ms = TIMEOUT_MS;
    if (!in || !out || dist_init_process_group(&options, &world) != DIST_OK ||
        dist_dup_group(world, &brief, &group) != DIST_OK)
        return 1;
    rank = dist_get_rank(group);
    memset(in, rank, BLOCK);
    memset(out, 0, 2 * BLOCK);
    code = run(group, in, out);
    dist_destroy_process_group(group);
    dist_destroy_process_group(world);
    free(in);
    free(out);
    return code;
}
