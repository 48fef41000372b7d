/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that exchanges the ranks' addresses itself, so libdist needs no launcher, port or file.
 * Here the program uses memory that it shares with its forked processes.
 */
#include <dist/dist.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS 4
#define BLOCK_MAX 65536

/* Memory that the ranks share. */
struct shared {
    pthread_barrier_t barrier;
    unsigned char blocks[RANKS][BLOCK_MAX];
};

struct rank_arg {
    struct shared *shared;
    int rank;
};

/* Writes this rank's block, waits for the blocks of the other ranks, and reads all of them. */
static int exchange(void *arg, const void *in, void *out, size_t bytes)
{
    const struct rank_arg *mine = (const struct rank_arg *)arg;
    struct shared *shared = mine->shared;

    if (bytes > BLOCK_MAX)
        return -1;
    memcpy(shared->blocks[mine->rank], in, bytes);
    pthread_barrier_wait(&shared->barrier);
    for (size_t r = 0; r < RANKS; r++)
        memcpy((char *)out + r * bytes, shared->blocks[r], bytes);
    pthread_barrier_wait(&shared->barrier); /* so that no rank overwrites its block too early */
    return 0;
}

static int run_rank(struct shared *shared, int rank)
{
    struct rank_arg mine = {shared, rank};
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_group *group = NULL;
    double x = rank + 1;
    dist_status status;

    options.rank = rank;
    options.world_size = RANKS;
    options.oob_all_gather = exchange;
    options.oob_arg = &mine;
    status = dist_init_process_group(&options, &group);
    if (status == DIST_OK)
        status = dist_all_reduce(group, &x, &x, 1, DIST_FLOAT64, DIST_PROD);
    if (status == DIST_OK)
        printf("rank %d of %d: product %g\n", rank, dist_get_world_size(group), x);
    else
        fprintf(stderr, "%s\n", dist_last_error());
    return dist_destroy_process_group(group) != DIST_OK || status != DIST_OK;
}

int main(void)
{
    struct shared *shared = (struct shared *)mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                                                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t attributes;
    int code = 0, status;

    if (shared == MAP_FAILED)
        return 1;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->barrier, &attributes, RANKS);
    for (int rank = 0; rank < RANKS; rank++) {
        pid_t child = fork();

        if (child < 0)
            return 1;
        if (child == 0)
            exit(run_rank(shared, rank));
    }
    while (wait(&status) > 0)
        code = status ? 1 : code;
    return code;
}
