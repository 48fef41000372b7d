/* SPDX-License-Identifier: BSD-3-Clause */
/* The store with few or no free descriptors. */
#include "base/clock.h"
#include "base/log.h"
#include "ranks.h"

#include "rendezvous/meet.h"
#include "store/server.h"

#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#define WAIT_MS 20000

#define FEW_FILES 256

/* The soft limit is raised to what the ranks need; too low a hard limit is an error immediately. */
static void serve_with_few_files(int rank, void *arg)
{
    struct rlimit files;
    struct disti_store_server *server = NULL;

    (void)rank;
    (void)arg;
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = FEW_FILES;
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    CHECK(disti_store_server_listen("127.0.0.1", 0, 2 * FEW_FILES, 0, &server) == DIST_OK);
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > 2 * FEW_FILES);
    disti_store_server_stop(server, 0);
    files.rlim_cur = files.rlim_max = FEW_FILES;
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    CHECK(disti_store_server_listen("127.0.0.1", 0, 2 * FEW_FILES, 0, &server) == DIST_ERR_SYSTEM);
    CHECK(strstr(dist_last_error(), "ulimit -Hn"));
}

static void test_the_soft_limit_is_raised(void **state)
{
    (void)state;
    if (unit_patience() > 1)
        skip(); /* valgrind does not let its limits be changed */
    ranks_run(1, serve_with_few_files, NULL);
}

static int64_t cpu_ms(void)
{
    struct timespec used;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (int64_t)used.tv_sec * 1000 + used.tv_nsec / 1000000;
}

static atomic_int warnings;

static void count_warnings(void *arg, dist_log_level level, const char *line)
{
    (void)arg;
    if (level == DIST_LOG_WARN && strstr(line, "ulimit -n"))
        atomic_fetch_add(&warnings, 1);
}

/* Without a free descriptor, clients of the store and of discovery wait, and the server does not
 * spin. */
static void join_without_descriptors(void)
{
    struct disti_log log = {.fn = count_warnings, .level = DIST_LOG_WARN};
    struct disti_store_server *full;
    struct disti_store *store = NULL;
    struct rlimit files, none;
    char job[32], secret[128];
    int discovery, port = 0;
    int64_t used;
    pid_t client;

    disti_log_use(&log);
    snprintf(job, sizeof(job), "full.%d", (int)getpid());
    CHECK(disti_store_server_listen("127.0.0.1", 0, 1, 0, &full) == DIST_OK);
    CHECK(disti_discovery_open(job, &discovery) == DIST_OK);
    disti_store_server_set_discovery(full, discovery);
    port = disti_store_server_port(full);
    client = fork();
    CHECK(client >= 0);
    if (client == 0) { /* asks discovery until it answers, then joins */
        int64_t until = disti_deadline_ms(WAIT_MS);

        while (disti_discovery_ask(job, &port, secret) != DIST_OK)
            CHECK(!disti_expired(until));
        CHECK(ranks_connect("127.0.0.1", port, 0, 1, WAIT_MS, &store) == DIST_OK);
        disti_store_close(store);
        _exit(0);
    }
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    none = (struct rlimit){.rlim_cur = 3, .rlim_max = files.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    CHECK(disti_store_server_run(full) == DIST_OK);
    disti_sleep_ns(200 * 1000 * 1000); /* the client is waiting */
    used = cpu_ms();
    disti_sleep_ns(1000 * 1000 * 1000);
    CHECK(cpu_ms() - used < 50);
    CHECK(atomic_load(&warnings) == 1);
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    CHECK(waitpid(client, &port, 0) == client && port == 0);
    disti_store_server_stop(full, 1000);
}

static void rank_without_descriptors(int rank, void *arg)
{
    (void)rank;
    (void)arg;
    join_without_descriptors();
}

static void test_clients_wait_for_descriptors(void **state)
{
    (void)state;
    ranks_run(1, rank_without_descriptors, NULL);
}

#define LIMITED_FILES 64

/* Joins before the silent clients time out. */
static void join_in_time(struct disti_store_server *server)
{
    struct disti_store *store;

    CHECK(ranks_connect("127.0.0.1", disti_store_server_port(server), 0, 1,
                        STORE_HELLO_MS * unit_patience() / 2, &store) == DIST_OK);
    disti_store_close(store);
    _exit(0);
}

static int lowest_free(void)
{
    int fd = dup(STDERR_FILENO);

    close(fd);
    return fd;
}

/* Silent clients use half of a small limit, and the program uses up the other half: a rank can
 * still join. */
static void rank_among_silent_clients(int rank, void *arg)
{
    struct rlimit files;
    struct disti_store_server *server;
    pid_t clients, client;
    int kept[LIMITED_FILES], count = 0, status, lowest, gate[2];
    int64_t until = disti_deadline_ms(WAIT_MS);

    (void)rank;
    (void)arg;
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = LIMITED_FILES;
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    CHECK(disti_store_server_listen("127.0.0.1", 0, 1, 0, &server) == DIST_OK);
    CHECK(pipe(gate) == 0);
    CHECK((clients = fork()) >= 0);
    if (clients == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int i = 0; i < LIMITED_FILES / 2; i++)
            ranks_open_connection(server);
        pause();
    }
    CHECK((client = fork()) >= 0);
    if (client == 0) {
        char go;

        CHECK(read(gate[0], &go, 1) == 1);
        join_in_time(server);
    }
    lowest = lowest_free();
    CHECK(disti_store_server_run(server) == DIST_OK);
    while (lowest_free() < lowest + 8 && !disti_expired(until)) /* silent clients are connected */
        disti_sleep_ns(10 * 1000 * 1000);
    while (count < LIMITED_FILES && (kept[count] = dup(STDERR_FILENO)) >= 0)
        count++;
    CHECK(count >= LIMITED_FILES / 4);
    CHECK(write(gate[1], "", 1) == 1);
    CHECK(waitpid(client, &status, 0) == client && status == 0);
    kill(clients, SIGKILL);
    CHECK(waitpid(clients, &status, 0) == clients);
    while (count)
        close(kept[--count]);
    disti_store_server_stop(server, 1000);
}

static void test_a_rank_joins_among_silent_clients(void **state)
{
    (void)state;
    if (unit_patience() > 1)
        skip(); /* valgrind does not let its limits be changed */
    ranks_run(1, rank_among_silent_clients, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_soft_limit_is_raised),
        cmocka_unit_test(test_clients_wait_for_descriptors),
        cmocka_unit_test(test_a_rank_joins_among_silent_clients),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
