/* SPDX-License-Identifier: BSD-3-Clause */
/* The store where descriptors are few, or none is left. */
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

/* The soft limit is raised as far as the ranks need it; a hard one is an error, at once. */
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

static void test_few_descriptors(void **state)
{
    (void)state;
    if (unit_patience() > 1)
        skip(); /* valgrind does not have its limits changed */
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

/* With not one descriptor left: who knocks waits, in either queue, and nobody burns a CPU. */
static void knock_at_a_full_house(void)
{
    struct disti_log log = {.fn = count_warnings, .level = DIST_LOG_WARN};
    struct disti_store_server *full;
    struct disti_store *store = NULL;
    struct rlimit files, none;
    char job[32], secret[128];
    int discovery, port = 0;
    int64_t used;
    pid_t guest;

    disti_log_use(&log);
    snprintf(job, sizeof(job), "full.%d", (int)getpid());
    CHECK(disti_store_server_listen("127.0.0.1", 0, 1, 0, &full) == DIST_OK);
    CHECK(disti_discovery_open(job, &discovery) == DIST_OK);
    disti_store_server_set_discovery(full, discovery);
    port = disti_store_server_port(full);
    guest = fork();
    CHECK(guest >= 0);
    if (guest == 0) { /* asks at the discovery until it is answered, then comes in */
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
    disti_sleep_ns(200 * 1000 * 1000); /* the guest has come */
    used = cpu_ms();
    disti_sleep_ns(1000 * 1000 * 1000);
    CHECK(cpu_ms() - used < 50);
    CHECK(atomic_load(&warnings) == 1);
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    CHECK(waitpid(guest, &port, 0) == guest && port == 0);
    disti_store_server_stop(full, 1000);
}

static void full_house(int rank, void *arg)
{
    (void)rank;
    (void)arg;
    knock_at_a_full_house();
}

static void test_no_descriptors(void **state)
{
    (void)state;
    ranks_run(1, full_house, NULL);
}

#define HOUSE_FILES 64

/* Has come in before the strangers' time is over. */
static void come_in(struct disti_store_server *server)
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

/* Strangers take what a small limit leaves, and then the program the rest: a rank comes in. */
static void house_of_strangers(int rank, void *arg)
{
    struct rlimit files;
    struct disti_store_server *server;
    pid_t strangers, guest;
    int kept[HOUSE_FILES], count = 0, status, lowest, gate[2];
    int64_t until = disti_deadline_ms(WAIT_MS);

    (void)rank;
    (void)arg;
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = HOUSE_FILES;
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    CHECK(disti_store_server_listen("127.0.0.1", 0, 1, 0, &server) == DIST_OK);
    CHECK(pipe(gate) == 0);
    CHECK((strangers = fork()) >= 0);
    if (strangers == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int i = 0; i < HOUSE_FILES / 2; i++)
            ranks_stranger(server);
        pause();
    }
    CHECK((guest = fork()) >= 0);
    if (guest == 0) {
        char go;

        CHECK(read(gate[0], &go, 1) == 1);
        come_in(server);
    }
    lowest = lowest_free();
    CHECK(disti_store_server_run(server) == DIST_OK);
    while (lowest_free() < lowest + 8 && !disti_expired(until)) /* strangers are in */
        disti_sleep_ns(10 * 1000 * 1000);
    while (count < HOUSE_FILES && (kept[count] = dup(STDERR_FILENO)) >= 0)
        count++;
    CHECK(count >= HOUSE_FILES / 4);
    CHECK(write(gate[1], "", 1) == 1);
    CHECK(waitpid(guest, &status, 0) == guest && status == 0);
    kill(strangers, SIGKILL);
    CHECK(waitpid(strangers, &status, 0) == strangers);
    while (count)
        close(kept[--count]);
    disti_store_server_stop(server, 1000);
}

static void test_house_of_strangers(void **state)
{
    (void)state;
    if (unit_patience() > 1)
        skip(); /* valgrind does not have its limits changed */
    ranks_run(1, house_of_strangers, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_few_descriptors),
        cmocka_unit_test(test_no_descriptors),
        cmocka_unit_test(test_house_of_strangers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
