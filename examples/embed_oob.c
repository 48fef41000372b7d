/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that has a way of its own to exchange a few bytes: its ranks meet by that, with no
 * launcher, port or file. Here it is memory shared with the processes that it forks.
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

/* What the ranks share. */
struct board {
    pthread_barrier_t barrier;
    unsigned char blocks[RANKS][BLOCK_MAX];
};

struct own {
    struct board *board;
    int rank;
};

/* Every rank writes its block, waits for the others', and reads them all. */
static int exchange(void *arg, const void *in, void *out, size_t bytes)
{
    const struct own *own = (const struct own *)arg;
    struct board *board = own->board;

    if (bytes > BLOCK_MAX)
        return -1;
    memcpy(board->blocks[own->rank], in, bytes);
    pthread_barrier_wait(&board->barrier);
    for (size_t r = 0; r < RANKS; r++)
        memcpy((char *)out + r * bytes, board->blocks[r], bytes);
    pthread_barrier_wait(&board->barrier); /* before anybody writes the next */
    return 0;
}

static int run_rank(struct board *board, int rank)
{
    struct own own = {board, rank};
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_group *group = NULL;
    double x = rank + 1;
    dist_status status;

    options.rank = rank;
    options.world_size = RANKS;
    options.oob_all_gather = exchange;
    options.oob_arg = &own;
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
    struct board *board = (struct board *)mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
                                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t shared;
    int code = 0, status;

    if (board == MAP_FAILED)
        return 1;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&board->barrier, &shared, RANKS);
    for (int rank = 0; rank < RANKS; rank++) {
        pid_t child = fork();

        if (child < 0)
            return 1;
        if (child == 0)
            exit(run_rank(board, rank));
    }
    while (wait(&status) > 0)
        code = status ? 1 : code;
    return code;
}
