/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * strangers COUNT RATE RANKS PROGRAM [ARGUMENT]...: starts the ranks of a job on this machine, and
 * makes COUNT foreign connections ("strangers"), RATE per second, to all listening TCP sockets of
 * the ranks while they work. A stranger sends nothing, junk, or another protocol's greeting, or
 * closes at once, as port scans do. At most OPEN_MOST are open at a time. MASTER_PORT is the
 * caller's.
 *
 * Exit 0 if all were made while the job ran, no rank listens on the wildcard address, no stranger
 * received more than a greeting, and the ranks succeed. Prints the maximum memory and descriptors:
 *
 *     strangers: 3 sockets, 500 connections, 480 closed by the ranks, the longest answer 24 bytes
 *     strangers: 0.10 s of CPU time, the ranks 6.00 s
 *     strangers: a rank had at most 40000 KiB and 100 descriptors, all took 3.14 s
 */
#include "listeners.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OPEN_MOST 1000
#define RANKS_MOST 64
#define START_SECONDS 30   /* the maximum time until the ranks listen */
#define GREETING_BYTES 256 /* maximum size of a greeting, which contains no data and no secret */

static pid_t ranks[RANKS_MOST];
static int rank_count, ended, failed;
static struct listener listeners[LISTENERS_MOST];
static int listener_count;
static int connections[OPEN_MOST]; /* descriptors of open connections; 0 if unused */
static int closed_by_ranks;
static size_t longest;
static unsigned char junk[4096]; /* generated once, before CPU time is measured */
static long most_kib, most_descriptors;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void sleep_seconds(double seconds)
{
    const struct timespec time = {.tv_nsec = (long)(seconds * 1e9)};

    if (seconds > 0 && seconds < 1)
        nanosleep(&time, NULL);
}

static int fail(const char *what)
{
    fprintf(stderr, "strangers: %s\n", what);
    return 1;
}

/* ---- the job ---- */

static void start_ranks(char **command)
{
    char number[16];

    for (int r = 0; r < rank_count; r++) {
        ranks[r] = fork();
        if (ranks[r] != 0)
            continue;
        snprintf(number, sizeof(number), "%d", r);
        setenv("RANK", number, 1);
        setenv("LOCAL_RANK", number, 1);
        snprintf(number, sizeof(number), "%d", rank_count);
        setenv("WORLD_SIZE", number, 1);
        setenv("MASTER_ADDR", "127.0.0.1", 1);
        execv(command[0], command);
        perror(command[0]);
        _exit(127);
    }
}

/* Counts the ranks that have ended. */
static void reap_ranks(int options)
{
    int status;

    while (ended < rank_count && waitpid(-1, &status, options) > 0) {
        ended++;
        failed += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
}

static long resident_kib(pid_t process)
{
    char path[64], connection[256];
    long value = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)process);
    file = fopen(path, "re");
    while (file && fgets(connection, sizeof(connection), file))
        sscanf(connection, "VmHWM: %ld", &value);
    if (file)
        fclose(file);
    return value;
}

static long descriptors_of(pid_t process)
{
    char path[64];
    long count = 0;
    DIR *folder;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)process);
    folder = opendir(path);
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count - 2;
}

static void measure_ranks(void)
{
    for (int r = 0; r < rank_count; r++) {
        long kib = resident_kib(ranks[r]), descriptors = descriptors_of(ranks[r]);

        most_kib = kib > most_kib ? kib : most_kib;
        most_descriptors = descriptors > most_descriptors ? descriptors : most_descriptors;
    }
}

/* Finds the listening sockets after all ranks have joined: one per rank, and the store's at rank 0.
 */
static int find_listeners(void)
{
    const double until = now() + START_SECONDS;

    while (listener_count < rank_count + 1 && now() < until) {
        listener_count = 0;
        for (int r = 0; r < rank_count; r++) {
            struct listener found[LISTENERS_MOST];
            int count = listeners_of(ranks[r], found);

            for (int i = 0; i < count && listener_count < LISTENERS_MOST; i++)
                listeners[listener_count++] = found[i];
        }
        sleep_seconds(0.02);
    }
    for (int i = 0; i < listener_count; i++) {
        if (listeners[i].everywhere)
            return fail("a rank listens on the wildcard address");
    }
    return listener_count > rank_count ? 0 : fail("the ranks do not listen");
}

/* ---- strangers ---- */

/* Closes the connection. Counts it if the rank had closed it, and records the longest answer. */
static void close_connection(int *connection_p)
{
    char answer[4096];
    size_t received = 0;
    ssize_t n;

    if (*connection_p <= 0)
        return;
    while ((n = recv(*connection_p, answer, sizeof(answer), MSG_DONTWAIT)) > 0)
        received += (size_t)n;
    closed_by_ranks += n == 0 || errno != EAGAIN;
    longest = received > longest ? received : longest;
    close(*connection_p);
    *connection_p = 0;
}

static void send_something(int connection, int number)
{
    static const char http[] = "GET / HTTP/1.0\r\nHost: localhost\r\n\r\n";
    unsigned char greatest[64];

    switch (number % 6) {
    case 0:
        break;
    case 1:
        (void)!send(connection, junk, sizeof(junk), MSG_NOSIGNAL | MSG_DONTWAIT);
        break;
    case 2:
        (void)!send(connection, junk, 3, MSG_NOSIGNAL | MSG_DONTWAIT);
        break;
    case 3:
        (void)!send(connection, http, sizeof(http) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        break;
    case 4:
        memset(greatest, 0xff, sizeof(greatest));
        (void)!send(connection, greatest, sizeof(greatest), MSG_NOSIGNAL | MSG_DONTWAIT);
        break;
    default:
        break;
    }
}

static void connect_stranger(int number)
{
    const struct linger at_once = {.l_onoff = 1};
    const struct listener *to = &listeners[number % listener_count];
    int *connection_p = &connections[number % OPEN_MOST], connection;

    close_connection(connection_p);
    connection = socket(to->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connection < 0)
        return;
    if (connect(connection, (const struct sockaddr *)&to->address, to->length) < 0 &&
        errno == EINPROGRESS)
        poll(&(struct pollfd){.fd = connection, .events = POLLOUT}, 1, 10);
    *connection_p = connection;
    send_something(connection, number / listener_count);
    if (number / listener_count % 6 == 5) {
        setsockopt(connection, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        close_connection(connection_p);
    }
}

static double cpu_seconds(int whose)
{
    struct rusage used;

    if (getrusage(whose, &used) != 0)
        return 0;
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

/* Returns how many connections were made before the first rank ended. */
static int make_connections(int count, double rate)
{
    const double begin = now();
    int number = 0;

    while (number < count && ended == 0) {
        connect_stranger(number++);
        sleep_seconds(begin + number / rate - now());
        if (number % 64 == 0)
            measure_ranks();
        reap_ranks(WNOHANG);
    }
    return number;
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 0, came = 0;
    double rate = argc > 2 ? atof(argv[2]) : 0, begin = now();
    struct rlimit files;

    rank_count = argc > 3 ? atoi(argv[3]) : 0;
    if (argc < 5 || rate <= 0 || rank_count < 1 || rank_count > RANKS_MOST)
        return 2;
    for (size_t i = 0; i < sizeof(junk); i++)
        junk[i] = (unsigned char)rand();
    start_ranks(argv + 4);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    if (find_listeners() != 0)
        failed++;
    else
        came = make_connections(count, rate);
    while (ended == 0 && !failed) {
        measure_ranks();
        sleep_seconds(0.05);
        reap_ranks(WNOHANG);
    }
    reap_ranks(0);
    for (int i = 0; i < OPEN_MOST; i++)
        close_connection(&connections[i]);
    printf("strangers: %d sockets, %d connections, %d closed by the ranks, the longest answer %zu "
           "bytes\n",
           listener_count, came, closed_by_ranks, longest);
    printf("strangers: %.2f s of CPU time, the ranks %.2f s\n", cpu_seconds(RUSAGE_SELF),
           cpu_seconds(RUSAGE_CHILDREN));
    printf("strangers: a rank had at most %ld KiB and %ld descriptors, all took %.2f s\n", most_kib,
           most_descriptors, now() - begin);
    if (came < count)
        return fail("the job ended before all connections were made");
    if (longest > GREETING_BYTES)
        return fail("a stranger received more than a greeting");
    return failed ? 1 : 0;
}
