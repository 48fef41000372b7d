/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mishap BACKEND KIND VICTIM: one rank fails in a loop of all-reduces. Exit 0 if every other rank
 * gets the right error, which names the victim, and they can make a group without it. Unless the
 * timeout is the expected error, it is longer than the test may take; except over MPI, whose
 * finalization waits for the timeout.
 *
 *   kill      the victim is killed (SIGKILL) between two operations
 *   kill-in   it is killed while an operation is in progress
 *   kill-fork it is killed, and a child that it has forked stays alive
 *   exit      it exits without leaving, with exit code 0
 *   exit-atexit, exit-thread, exit-function: it calls exit(), in a thread of its own, or in a
 *             function of dist_on_complete
 *   silent    it stays alive and makes no call, so that the timeout ends the wait
 *   count     it calls with another count
 *   dtype     it calls with another dtype
 *   op        it calls another collective
 */
#include <dist/dist.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COUNT (1 << 20)
#define GOOD_ROUNDS 5
#define TIMEOUT_MS 4000
#define LONG_TIMEOUT_MS (60 * 60 * 1000)

static float data[2 * COUNT];

static void *exit_thread(void *arg)
{
    (void)arg;
    exit(0);
}

static void exit_function(void *arg, dist_status status)
{
    (void)arg;
    (void)status;
    exit(0);
}

/* Calls exit() in a completion function of a message to itself. */
static void exit_in_function(dist_group *group)
{
    int me = dist_get_rank(group);
    dist_work *recv, *send;
    float sent = 1, got;

    dist_irecv(group, &got, 1, DIST_FLOAT32, me, 0, NULL, &recv);
    dist_on_complete(recv, exit_function, NULL);
    dist_isend(group, &sent, 1, DIST_FLOAT32, me, 0, &send);
    dist_wait(send);
    dist_wait(recv);
}

static bool has_exited(const char *kind)
{
    return strncmp(kind, "kill", 4) == 0 || strncmp(kind, "exit", 4) == 0;
}

/* Makes the victim misbehave as `kind` says, instead of calling its all-reduce. */
static dist_status misbehave(dist_group *group, const char *kind)
{
    const struct timespec arrive = {.tv_nsec = 100 * 1000 * 1000};
    dist_work *work;
    pthread_t thread;

    if (has_exited(kind)) /* lets data in flight arrive, which the exit could discard */
        nanosleep(&arrive, NULL);
    if (strcmp(kind, "kill-in") == 0) {
        bool done;

        dist_all_reduce_async(group, data, data, COUNT, DIST_FLOAT32, DIST_SUM, &work);
        dist_test(work, &done);
    }
    if (strcmp(kind, "kill-fork") == 0 && fork() == 0) {
        sleep(60);
        _exit(0);
    }
    if (strncmp(kind, "kill", 4) == 0)
        kill(getpid(), SIGKILL);
    if (strcmp(kind, "exit") == 0)
        _exit(0);
    if (strcmp(kind, "exit-atexit") == 0)
        exit(0);
    if (strcmp(kind, "exit-thread") == 0 && pthread_create(&thread, NULL, exit_thread, NULL) == 0)
        pthread_join(thread, NULL);
    if (strcmp(kind, "exit-function") == 0)
        exit_in_function(group);
    if (strcmp(kind, "silent") == 0)
        sleep(2 * TIMEOUT_MS / 1000);
    if (strcmp(kind, "count") == 0)
        return dist_all_reduce(group, data, data, COUNT / 2, DIST_FLOAT32, DIST_SUM);
    if (strcmp(kind, "dtype") == 0)
        return dist_all_reduce(group, data, data, COUNT, DIST_INT32, DIST_SUM);
    if (strcmp(kind, "op") == 0)
        return dist_broadcast(group, data, COUNT, DIST_FLOAT32, 0);
    return dist_all_reduce(group, data, data, COUNT, DIST_FLOAT32, DIST_SUM);
}

/* A silent victim or a forked child lives for two timeouts, so a rank that waits for its end times
 * out. */
static int timeout_of(const char *backend, const char *kind)
{
    bool lives = strcmp(kind, "silent") == 0 || strcmp(kind, "kill-fork") == 0;

    return lives || strcmp(backend, "mpi") == 0 ? TIMEOUT_MS : LONG_TIMEOUT_MS;
}

static bool status_fits(const char *kind, dist_status status)
{
    if (has_exited(kind))
        return status == DIST_ERR_PEER_LOST;
    if (strcmp(kind, "silent") == 0)
        return status == DIST_ERR_TIMEOUT;
    return status == DIST_ERR_MISMATCH;
}

/* The survivors make a group from the failed group and sum in it. */
static int continue_without(dist_group *broken, int victim)
{
    struct dist_group_options options = DIST_GROUP_OPTIONS_INIT;
    int size = dist_get_world_size(broken), left[64], count = 0;
    dist_group *group = NULL;
    float sum = 1;

    for (int r = 0; r < size && count < 64; r++) {
        if (r != victim)
            left[count++] = r;
    }
    options.timeout_ms = 10 * TIMEOUT_MS;
    if (dist_new_group(broken, left, count, &options, &group) != DIST_OK ||
        dist_all_reduce(group, &sum, &sum, 1, DIST_FLOAT32, DIST_SUM) != DIST_OK ||
        dist_destroy_process_group(group) != DIST_OK) {
        printf("rank %d: no group of the survivors: %s\n", dist_get_rank(broken),
               dist_last_error());
        return 1;
    }
    return sum == (float)count ? 0 : 1;
}

/* Called on each survivor: waits for the error, which must be the right one and name the victim. On
 * a slow rank, the error may already be in `status`. */
static int survive(dist_group *group, const char *kind, int victim, dist_status status)
{
    bool nameless = strcmp(kind, "silent") == 0; /* a silent rank may not be named */
    char name[32];

    while (status == DIST_OK)
        status = dist_all_reduce(group, data, data, COUNT, DIST_FLOAT32, DIST_SUM);
    snprintf(name, sizeof(name), "rank %d", victim);
    printf("rank %d: %s: %s\n", dist_get_rank(group), dist_status_string(status),
           dist_last_error());
    if (!status_fits(kind, status) || (has_exited(kind) && strstr(dist_last_error(), " silent")))
        return 1;
    if (!nameless && !strstr(dist_last_error(), name))
        return 1;
    status = dist_all_reduce(group, data, data, 1, DIST_FLOAT32, DIST_SUM);
    if (status != DIST_ERR_ABORTED) {
        printf("rank %d: a failed group accepted another call: %s\n", dist_get_rank(group),
               dist_status_string(status));
        return 1;
    }
    /* Without rank 0, which serves the store, no group can be made. */
    return has_exited(kind) && victim != 0 ? continue_without(group, victim) : 0;
}

static int run_rank(const char *backend, const char *kind, int victim)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_group *group;
    dist_status status = DIST_OK;
    int code = 0;

    options.backend = backend;
    options.timeout_ms = timeout_of(backend, kind);
    if (dist_init_process_group(&options, &group) != DIST_OK) {
        printf("init: %s\n", dist_last_error());
        return 1;
    }
    for (int i = 0; i < GOOD_ROUNDS && status == DIST_OK; i++)
        status = dist_all_reduce(group, data, data, COUNT, DIST_FLOAT32, DIST_SUM);
    if (dist_get_rank(group) == victim)
        misbehave(group, kind);
    else
        code = survive(group, kind, victim, status);
    dist_destroy_process_group(group);
    return code;
}

int main(int argc, char **argv)
{
    int status;
    pid_t child;

    if (argc != 4)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    child = fork(); /* hides the signal that killed a rank from the launcher */
    if (child == 0) {
        setpgid(0, 0);
        exit(run_rank(argv[1], argv[2], atoi(argv[3])));
    }
    if (child < 0 || waitpid(child, &status, 0) < 0)
        return 1;
    if (strcmp(argv[2], "kill-fork") == 0 && WIFSIGNALED(status)) {
        sleep(2 * TIMEOUT_MS / 1000); /* the other ranks must not need the child's end */
        kill(-child, SIGKILL);
    }
    if (WIFSIGNALED(status))
        return WTERMSIG(status) == SIGKILL && strncmp(argv[2], "kill", 4) == 0 ? 0 : 1;
    return WEXITSTATUS(status);
}
