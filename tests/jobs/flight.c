/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * flight KIND: three ranks make eight all-reduces and a barrier. Before the barrier, rank 1 suffers
 * what KIND says. Exit 0 if every rank gets the right status and text.
 *
 *   healthy   nothing: each rank gets SIGUSR1 twice, then writes RANK.json, and gets SIGUSR1 again
 *             after it has destroyed its group
 *   own       nothing: the program handles SIGUSR1 itself, and must receive it
 *   absent    it makes no barrier, and gets SIGUSR1
 *   other     it calls a broadcast instead
 *   killed    it is killed
 *   stopped   it is stopped, and continues after rank 0 has failed
 *   unsent    nothing: rank 0 sends one message to rank 2, which waits for two
 *   mapped    nothing; files that root creates belong to another user, as on a mount that maps
 * users
 */
#include <dist/dist.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CALLS 8
#define COUNT 8
#define VICTIM 1
#define TIMEOUT_MS 4000

static float data[COUNT];
static volatile sig_atomic_t handled;

static void on_signal(int number)
{
    (void)number;
    handled = 1;
}

static int fail(int rank, const char *what)
{
    printf("rank %d: %s: %s\n", rank, what, dist_last_error());
    return 1;
}

static dist_group *join(void)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_group *group = NULL;

    options.backend = "gloo";
    options.timeout_ms = TIMEOUT_MS;
    dist_init_process_group(&options, &group);
    return group;
}

static int write_own(dist_group *group)
{
    char path[32];

    raise(SIGUSR1);
    raise(SIGUSR1);
    snprintf(path, sizeof(path), "own%d.json", dist_get_rank(group));
    if (dist_flight_dump("/nowhere/at/all.json") != DIST_ERR_SYSTEM)
        return fail(dist_get_rank(group), "a dump to nowhere");
    return dist_flight_dump(path) == DIST_OK ? 0 : fail(dist_get_rank(group), "a dump");
}

/* A new file belongs to the process, whatever owner the file system reports. An existing file of
 * another user is not overwritten. */
static int write_mapped(dist_group *group)
{
    const int rank = dist_get_rank(group);
    char path[32];
    dist_status status;

    snprintf(path, sizeof(path), "mapped%d.json", rank);
    setfsuid(12345);
    status = dist_flight_dump(path);
    setfsuid(0);
    if (status != DIST_OK)
        return fail(rank, "a dump to a mount that maps users");
    return dist_flight_dump(path) == DIST_ERR_SYSTEM ? 0 : fail(rank, "a stranger's file");
}

/* Makes the victim misbehave as `kind` says, instead of calling its barrier. */
static int misbehave(dist_group *group, const char *kind)
{
    const struct timespec others_time_out = {.tv_sec = TIMEOUT_MS / 1000 + 1};

    if (strcmp(kind, "killed") == 0)
        raise(SIGKILL);
    if (strcmp(kind, "other") == 0)
        return dist_broadcast(group, data, COUNT, DIST_FLOAT32, 0) == DIST_OK;
    if (strcmp(kind, "absent") == 0) {
        raise(SIGUSR1);
        nanosleep(&others_time_out, NULL);
        return 0;
    }
    raise(SIGSTOP);
    return dist_barrier(group) == DIST_OK;
}

/* Checks the status and text of the other ranks. */
static int check(int rank, const char *kind, dist_status status)
{
    const char *text = dist_last_error();
    const bool kills = strcmp(kind, "killed") == 0, differs = strcmp(kind, "other") == 0;

    if (kills)
        return status == DIST_ERR_PEER_LOST && strstr(text, "barrier #8: rank 1 (host ") &&
                       strstr(text, " alive") /* one may have left since */
                   ? 0
                   : fail(rank, "killed");
    if (!strstr(text, "(dist_info flight)"))
        return fail(rank, "the file is not named");
    if (differs)
        return strstr(text, "broadcast") && strstr(text, "barrier") ? 0 : fail(rank, "other");
    return strstr(text, "barrier #8: rank ") && strstr(text, "silent") ? 0 : fail(rank, "silent");
}

/* Messages instead of the barrier. */
static int run_messages(dist_group *group)
{
    const int rank = dist_get_rank(group);
    const struct timespec time_out = {.tv_sec = TIMEOUT_MS / 1000 + 1};

    if (rank == 0 && dist_send(group, data, COUNT, DIST_FLOAT32, 2, 7) != DIST_OK)
        return fail(rank, "the first send");
    if (rank == 2 && dist_recv(group, data, COUNT, DIST_FLOAT32, 0, 7, NULL) != DIST_OK)
        return fail(rank, "the first receive");
    if (rank == 2)
        return dist_recv(group, data, COUNT, DIST_FLOAT32, 0, 7, NULL) == DIST_OK;
    raise(SIGUSR1);
    nanosleep(&time_out, NULL);
    return 0;
}

static int run(dist_group *group, const char *kind)
{
    const struct timespec others_end = {.tv_sec = 1};
    const int rank = dist_get_rank(group);
    const bool maps = strcmp(kind, "mapped") == 0;
    const bool well = maps || strcmp(kind, "healthy") == 0 || strcmp(kind, "own") == 0;
    int32_t pid = (int32_t)getpid(), pids[3];
    dist_status status;

    if (dist_all_gather(group, &pid, pids, 1, DIST_INT32) != DIST_OK)
        return fail(rank, "all_gather");
    for (int i = 1; i < CALLS; i++) {
        if (dist_all_reduce(group, data, data, COUNT, DIST_FLOAT32, DIST_SUM) != DIST_OK)
            return fail(rank, "all_reduce");
    }
    if (strcmp(kind, "unsent") == 0)
        return run_messages(group);
    if (rank == VICTIM && !well)
        return misbehave(group, kind);
    status = dist_barrier(group);
    if (maps && status == DIST_OK)
        return write_mapped(group);
    if (well)
        return status == DIST_OK ? write_own(group) : fail(rank, "barrier");
    if (strcmp(kind, "stopped") == 0 && rank == 0) {
        nanosleep(&others_end, NULL); /* lets the other ranks time out first */
        kill(pids[VICTIM], SIGCONT);
    }
    return check(rank, kind, status);
}

int main(int argc, char **argv)
{
    const bool own = argc == 2 && strcmp(argv[1], "own") == 0;
    dist_group *group;
    int code, status;
    pid_t pid;

    if (argc != 2)
        return 2;
    if (strcmp(argv[1], "killed") == 0 && (pid = fork()) > 0)
        return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    if (own)
        signal(SIGUSR1, on_signal);
    group = join();
    if (!group)
        return fail(-1, "join");
    code = run(group, argv[1]);
    dist_destroy_process_group(group);
    if (strcmp(argv[1], "healthy") == 0)
        raise(SIGUSR1);
    return code || own != (handled != 0);
}
