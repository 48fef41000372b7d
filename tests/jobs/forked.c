/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * forked BACKEND: every rank forks while it has groups, requests and threads in the library. Every
 * call on the parent's objects is refused in the children, which may join jobs of their own and
 * exit in any way. Exit 0: the parents' job was not disturbed.
 */
#include <dist/dist.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMEOUT_MS 20000
#define FORKS 8
#define COUNT 5000

static const char *backend;

/* The objects that a rank has when it forks. */
static struct {
    dist_group *group, *busy; /* a thread uses `busy` all the time */
    dist_work *work, *persistent;
    dist_work *of_destroyed; /* its group has been destroyed */
    void *memory;
    atomic_bool stop;
} mine;

static atomic_int problems; /* problems seen by any thread */

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("line %d: %s does not hold: %s\n", __LINE__, #condition, dist_last_error());    \
            problems++;                                                                            \
        }                                                                                          \
    } while (0)

static void ignore(void *arg, dist_status status)
{
    (void)arg;
    (void)status;
}

static bool refused(dist_status status)
{
    return status == DIST_ERR_INVALID_ARGUMENT && strstr(dist_last_error(), "was forked");
}

static void expect_refused_calls(dist_group *group)
{
    float in[2] = {0}, out[64] = {0};
    void *buffers[1] = {in};
    size_t counts[1] = {2};
    dist_group *other = NULL;
    dist_work *work = NULL;
    const int ranks[] = {0};

    EXPECT(refused(dist_all_reduce(group, in, out, 2, DIST_FLOAT32, DIST_SUM)));
    EXPECT(refused(dist_all_reduce_async(group, in, out, 2, DIST_FLOAT32, DIST_SUM, &work)));
    EXPECT(refused(dist_all_reduce_init(group, in, out, 2, DIST_FLOAT32, DIST_SUM, &work)));
    EXPECT(refused(dist_all_reduce_coalesced(group, buffers, counts, 1, DIST_FLOAT32, DIST_SUM)));
    EXPECT(refused(dist_broadcast(group, in, 2, DIST_FLOAT32, 0)));
    EXPECT(refused(dist_all_gather(group, in, out, 2, DIST_FLOAT32)));
    EXPECT(refused(dist_all_to_all(group, in, out, 1, DIST_FLOAT32)));
    EXPECT(refused(dist_barrier(group)));
    EXPECT(refused(dist_barrier_async(group, &work)));
    EXPECT(refused(dist_monitored_barrier(group, 10)));
    EXPECT(refused(dist_send(group, in, 2, DIST_FLOAT32, 0, 1)));
    EXPECT(refused(dist_irecv(group, in, 2, DIST_FLOAT32, 0, 1, NULL, &work)));
    EXPECT(refused(dist_new_group(group, ranks, 1, NULL, &other)));
    EXPECT(refused(dist_split_group(group, 0, 0, NULL, &other)));
    EXPECT(refused(dist_dup_group(group, NULL, &other)));
    EXPECT(refused(dist_alloc(group, 100, &mine.memory)));
    EXPECT(refused(dist_register(group, mine.memory, 4096)));
    EXPECT(refused(dist_unregister(group, mine.memory)));
    EXPECT(refused(dist_free(group, mine.memory)));
    EXPECT(refused(dist_set_stream(group, NULL)));
    EXPECT(refused(dist_destroy_process_group(group)));
    EXPECT(refused(dist_destroy_process_group(group)));
    EXPECT(!work && !other);
}

static void expect_refused_requests(dist_work *work)
{
    bool done;

    EXPECT(refused(dist_test(work, &done)));
    EXPECT(refused(dist_wait_for(work, 1)));
    EXPECT(refused(dist_wait(work)));
    EXPECT(refused(dist_on_complete(work, ignore, NULL)));
    EXPECT(refused(dist_start(work)));
    EXPECT(refused(dist_work_free(work)));
}

/* A rank of the child's own job. */
static int own_rank(int rank, void *arg)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    int64_t sum = rank + 1;
    dist_group *group;
    dist_work *work;

    (void)arg;
    options.backend = "gloo";
    options.timeout_ms = TIMEOUT_MS;
    EXPECT(dist_init_process_group(&options, &group) == DIST_OK);
    if (problems)
        return 1;
    EXPECT(dist_all_reduce(group, &sum, &sum, 1, DIST_INT64, DIST_SUM) == DIST_OK && sum == 3);
    EXPECT(dist_barrier_async(group, &work) == DIST_OK && dist_wait(work) == DIST_OK);
    EXPECT(dist_destroy_process_group(group) == DIST_OK);
    return problems != 0;
}

static void run_child(int number)
{
    int code = -1;

    problems = 0;
    alarm(60);
    expect_refused_calls(mine.group);
    expect_refused_calls(mine.busy);
    expect_refused_requests(mine.work);
    expect_refused_requests(mine.persistent);
    EXPECT(dist_wait(mine.of_destroyed) == DIST_ERR_INVALID_ARGUMENT);
    EXPECT(dist_get_rank(mine.group) >= 0);
    if (number == 0)
        EXPECT(dist_spawn(2, own_rank, NULL, &code) == DIST_OK && code == 0);
    fflush(stdout);
    if (number % 2)
        _exit(problems != 0);
    exit(problems != 0);
}

static void *keep_busy(void *arg)
{
    (void)arg;
    for (bool stop = false; !stop;) {
        static float data[COUNT];
        int32_t enough = atomic_load(&mine.stop);
        dist_work *work;

        EXPECT(dist_all_reduce_async(mine.busy, data, data, COUNT, DIST_FLOAT32, DIST_SUM, &work) ==
                   DIST_OK &&
               dist_wait(work) == DIST_OK);
        EXPECT(dist_all_reduce(mine.busy, &enough, &enough, 1, DIST_INT32, DIST_MIN) == DIST_OK);
        stop = enough || problems;
    }
    return NULL;
}

static void check_group(void)
{
    int64_t sum = 1;

    EXPECT(dist_all_reduce(mine.group, &sum, &sum, 1, DIST_INT64, DIST_SUM) == DIST_OK);
    EXPECT(sum == dist_get_world_size(mine.group));
}

static void fork_and_check(int number)
{
    int status = -1;
    pid_t child;

    fflush(stdout);
    child = fork();
    if (child == 0)
        run_child(number);
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    check_group();
}

/* Forks a child that lives as long as the job, like a data loader's worker. */
static pid_t fork_worker(void)
{
    pid_t child = fork();

    if (child == 0) {
        alarm(60);
        for (;;)
            pause();
    }
    return child;
}

static void run_parent(bool threads)
{
    int rank = dist_get_rank(mine.group), ranks = dist_get_world_size(mine.group);
    static float data[COUNT];
    int32_t word = 0;
    dist_group *destroyed;
    pthread_t thread;
    pid_t worker;

    EXPECT(dist_dup_group(mine.group, NULL, &destroyed) == DIST_OK &&
           dist_barrier_async(destroyed, &mine.of_destroyed) == DIST_OK &&
           dist_destroy_process_group(destroyed) == DIST_OK);
    EXPECT(dist_alloc(mine.group, 5000, &mine.memory) == DIST_OK);
    EXPECT(dist_irecv(mine.group, &word, 1, DIST_INT32, (rank + ranks - 1) % ranks, 7, NULL,
                      &mine.work) == DIST_OK);
    EXPECT(dist_all_reduce_init(mine.group, data, data, COUNT, DIST_FLOAT32, DIST_SUM,
                                &mine.persistent) == DIST_OK);
    check_group();
    if (threads)
        EXPECT(pthread_create(&thread, NULL, keep_busy, NULL) == 0);
    for (int i = 0; i < FORKS; i++)
        fork_and_check(i);
    worker = fork_worker();
    EXPECT(system("true") == 0);
    EXPECT(dist_start(mine.persistent) == DIST_OK && dist_wait(mine.persistent) == DIST_OK);
    EXPECT(dist_send(mine.group, &rank, 1, DIST_INT32, (rank + 1) % ranks, 7) == DIST_OK);
    EXPECT(dist_wait(mine.work) == DIST_OK && word == (rank + ranks - 1) % ranks);
    atomic_store(&mine.stop, true);
    if (threads)
        pthread_join(thread, NULL);
    EXPECT(dist_wait(mine.of_destroyed) == DIST_OK);
    EXPECT(dist_work_free(mine.persistent) == DIST_OK);
    EXPECT(dist_free(mine.group, mine.memory) == DIST_OK);
    EXPECT(dist_destroy_process_group(mine.group) == DIST_OK);
    kill(worker, SIGKILL);
    waitpid(worker, NULL, 0);
}

int main(int argc, char **argv)
{
    struct dist_options options = DIST_OPTIONS_INIT;

    if (argc != 2)
        return 2;
        /*
         * With AddressSanitizer before LLVM 17, a child of a process with threads deadlocks on an
         * allocator lock that another thread held at the fork. ThreadSanitizer lets the child start
         * no thread.
         */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    puts("with this sanitizer a child of a process with threads cannot continue");
    return 77;
#endif
    setvbuf(stdout, NULL, _IOLBF, 0);
    backend = argv[1];
    options.backend = backend;
    options.timeout_ms = TIMEOUT_MS;
    if (dist_init_process_group(&options, &mine.group) != DIST_OK ||
        dist_dup_group(mine.group, NULL, &mine.busy) != DIST_OK) {
        printf("init: %s\n", dist_last_error());
        return 1;
    }
    /* A program's threads need MPI_THREAD_MULTIPLE, which an MPI may not provide. */
    run_parent(strcmp(backend, "mpi") != 0);
    return problems != 0;
}
