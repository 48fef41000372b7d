/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * first_thread BACKEND URL [shares]: the first thread of each rank ends by pthread_exit while
 * another thread continues to use the library, including shared memory. Then the ranks join again,
 * at URL. first_thread spawn: the remaining thread starts the ranks. Exit 0: everything worked as
 * if the first thread still ran.
 */
#include <dist/dist.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LONG (3 << 20)
#define TAG 1
#define RANKS_MOST 8
#define SPAWNED 2
/* The first call offers a segment; later calls use it. */
#define CALLS 3

static const char *backend, *url;
static dist_group *world;
static int rank, ranks, shares;

/* Exits the process if the call has failed. */
static void must(dist_status status, const char *what)
{
    if (status == DIST_OK)
        return;
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, dist_last_error());
    _exit(1);
}

static void must_hold(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "rank %d: %s\n", rank, what);
    _exit(1);
}

/* Waits until the first thread has ended: the process then has state Z (zombie) although it runs.
 */
static int first_thread_has_ended(void)
{
    FILE *file = fopen("/proc/self/stat", "re");
    char state = 0;

    must_hold(file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1, "cannot read /proc/self/stat");
    fclose(file);
    return state == 'Z';
}

static unsigned char *block(int from)
{
    unsigned char *bytes = malloc(LONG);

    must_hold(bytes != NULL, "no memory");
    memset(bytes, from + 1, LONG);
    return bytes;
}

static int is_from(const unsigned char *bytes, int from)
{
    return bytes[0] == from + 1 && memcmp(bytes, bytes + 1, LONG - 1) == 0;
}

/* Messages are long enough to be read directly from the sender's memory. */
static void pass_messages(void)
{
    const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    unsigned char *mine = block(rank), *theirs = block(rank);
    dist_work *work;

    must(dist_isend(world, mine, LONG, DIST_UINT8, next, TAG, &work), "isend");
    must(dist_recv(world, theirs, LONG, DIST_UINT8, before, TAG, NULL), "recv");
    must(dist_wait(work), "wait");
    must_hold(is_from(theirs, before), "a message is wrong");
    free(mine);
    free(theirs);
}

static void broadcasts(void)
{
    unsigned char *bytes = block(rank);

    for (int root = 0; root < ranks; root++) {
        memset(bytes, rank + 1, LONG);
        must(dist_broadcast(world, bytes, LONG, DIST_UINT8, root), "broadcast");
        must_hold(is_from(bytes, root), "a broadcast is wrong");
    }
    free(bytes);
}

static void reduces(unsigned char *bytes)
{
    memset(bytes, 1, LONG);
    must(dist_all_reduce(world, bytes, bytes, LONG, DIST_UINT8, DIST_SUM), "all_reduce");
    must_hold(is_from(bytes, ranks - 1), "a sum is wrong");
}

/* Allocates a block per rank that the other ranks can map. */
static void share_blocks(void)
{
    void *blocks[RANKS_MOST];

    must_hold(ranks <= RANKS_MOST, "too many ranks");
    must(dist_shared_alloc(world, LONG, blocks), "shared_alloc");
    memset(blocks[rank], rank + 1, LONG);
    must(dist_barrier(world), "barrier");
    for (int from = 0; from < ranks; from++)
        must_hold(is_from(blocks[from], from), "a block is wrong");
    must(dist_barrier(world), "barrier");
    must(dist_shared_free(blocks[rank]), "shared_free");
}

static void reduces_registered(void)
{
    unsigned char *bytes = block(rank);

    must(dist_register(world, bytes, LONG), "register");
    for (int call = 0; call < CALLS; call++)
        reduces(bytes);
    must(dist_unregister(world, bytes), "unregister");
    free(bytes);
}

/* Joins again, which repeats the detection of process and machine. */
static void join_again(void)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    unsigned char *bytes = block(rank);

    options.backend = backend;
    options.init_method = url;
    options.rank = rank;
    options.world_size = ranks;
    must(dist_init_process_group(&options, &world), "second init");
    reduces(bytes);
    pass_messages();
    free(bytes);
    must(dist_destroy_process_group(world), "second destroy");
}

static void *go_on(void *arg)
{
    unsigned char *bytes = block(rank);

    while (!first_thread_has_ended())
        usleep(1000);
    must(dist_barrier(world), "barrier");
    pass_messages();
    broadcasts();
    reduces(bytes);
    free(bytes);
    if (shares) {
        share_blocks();
        reduces_registered();
    }
    must(dist_destroy_process_group(world), "destroy");
    join_again();
    exit(0);
    return arg;
}

static int be_spawned(int number, void *arg)
{
    int32_t sum = 1;

    rank = number;
    must(dist_init_process_group(arg, &world), "init");
    must(dist_all_reduce(world, &sum, &sum, 1, DIST_INT32, DIST_SUM), "all_reduce");
    must(dist_destroy_process_group(world), "destroy");
    return sum != SPAWNED;
}

static void *spawn(void *arg)
{
    int exit_code = -1;

    while (!first_thread_has_ended())
        usleep(1000);
    must(dist_spawn(SPAWNED, be_spawned, NULL, &exit_code), "spawn");
    exit(exit_code);
    return arg;
}

int main(int argc, char **argv)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    pthread_t thread;

    if (argc == 2) {
        must_hold(pthread_create(&thread, NULL, spawn, NULL) == 0, "cannot start a thread");
        pthread_exit(NULL);
    }
    must_hold(argc > 2, "usage: first_thread BACKEND URL [shares] | spawn");
    backend = argv[1];
    url = argv[2];
    shares = argc > 3;
    options.backend = backend;
    must(dist_init_process_group(&options, &world), "init");
    rank = dist_get_rank(world);
    ranks = dist_get_world_size(world);
    pass_messages(); /* selects how the ranks read each other's memory */
    must_hold(pthread_create(&thread, NULL, go_on, NULL) == 0, "cannot start a thread");
    pthread_exit(NULL);
}
